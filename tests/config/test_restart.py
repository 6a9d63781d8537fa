"""Which settings take effect while the gateway runs, and which wait for a restart."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from operator import attrgetter
from pathlib import Path

import pytest

from gateway.callers.methods import OAuthIssuer
from gateway.config import SETTINGS, Config, live_changes, load_config, place_of, restart_keys, with_running
from gateway.config.notices import LIVE, RESTART
from tests.certificates import self_signed

PLAIN = "apps: {one: {source: page.html, policy: one.yaml}}\n"

OTHER = """
server:
  listen: 127.0.0.1:9999
  public_url: https://gateway.example
  state_dir: state
  admin_listen: 127.0.0.1:9998
  admin_hosts: [ops]
  origins: {console: https://console.example, apps: "https://{app}.example", sandbox: https://sandbox.example}
  trusted_proxies: [10.0.0.1]
  client_header: forwarded
  busy_poll: true
  fast_path: false
  http_client: aiohttp
  connections: 11
  connections_each: 12
  requests_each: 13
  drain: {announce: 1s, timeout: 2s}
auth: [{type: oauth, issuer: https://login.example}]
roles: {user: [staff]}
hosts:
  - {origin: https://chat.example, apps: [one], issuer: https://login.example, client_id: chat,
     client_secret: "${file:key}"}
apps: {one: {source: page.html, policy: one.yaml}}
credentials: {key: {type: header, value: "${file:key}"}}
log: json
access_log: true
stores:
  {database: "postgresql://db/gateway", redis: "redis://db", journal: other.journal,
   encryption_key: "${file:other.key}"}
approvals:
  ask: [console, webhook]
  timeout: 9s
  presence: webauthn
  webhook: {url: https://hook.example/, secret: "${file:key}"}
audit:
  {on_failure: refuse, redact: [$.pin], sinks: [otlp], retain: 9d, fsync: always, refusals: 9, key: "${file:key}",
   rotate: {size: 9MB, every: 9d}}
mcp:
  {fast_path: false, sessions: 9, sessions_each: 9, session_idle: 9m, views_each: 9, bodies: 999MiB, bodies_each: 99MiB}
cluster: {listen: "unix:node.sock", keys: ["${file:key}"]}
telemetry: {otlp: https://otlp.example, authorization: "${file:key}", network: public}
plugins: [json]
"""


@pytest.fixture
def both(tmp_path: Path) -> tuple[Config, Config]:
    """The configuration of a first start, and one in which every other setting differs."""
    (tmp_path / "page.html").write_text("<!doctype html>")
    (tmp_path / "one.yaml").write_text("version: 1\n")
    (tmp_path / "key").write_text("k" * 43 + "=")
    (tmp_path / "gateway.yaml").write_text(PLAIN)
    first = load_config(tmp_path / "gateway.yaml", {})
    (tmp_path / "gateway.yaml").write_text(OTHER)
    return first, load_config(tmp_path / "gateway.yaml", {})


def leaves(value: object, path: str = "") -> list[str]:
    """The paths of all attributes that hold no further settings."""
    if path in ("apps", "upstreams", "credentials", "auth", "roles", "files", "path", "approvals.webhook") or (
        not is_dataclass(value) or isinstance(value, type) or path.endswith(("network", "encryption_key"))
    ):
        return [path]
    found = (field.name for field in fields(value))
    return [leaf for name in found for leaf in leaves(getattr(value, name), f"{path}.{name}".lstrip("."))]


def test_each_part_of_the_configuration_is_live_or_needs_a_restart(both: tuple[Config, Config]) -> None:
    """None is forgotten, and none is in both tables."""
    named = [path for table in (LIVE, RESTART) for paths in table.values() for path in paths]
    assert len(set(LIVE) | set(RESTART)) == len(LIVE) + len(RESTART)
    assert set(leaves(both[0])) - {"path", "apps", "upstreams", "files"} == set(named)
    keys = {setting.key for setting in SETTINGS}
    assert {*RESTART} <= keys | {key.rpartition(".")[0] for key in keys}


def test_what_needs_a_restart_keeps_its_running_value(both: tuple[Config, Config]) -> None:
    """All other settings are the new ones, and every difference is named."""
    first, other = both
    usable = with_running(first, other)
    follow = {"stores.database", "stores.journal", "stores.encryption_key", "audit.key"}  # where the state folder is
    assert set(restart_keys(first, other)) == set(RESTART) - follow
    assert restart_keys(first, usable) == []
    assert set(live_changes(first, usable)) == set(LIVE) - {"approvals.interactive"}
    for paths in RESTART.values():
        for path in paths:
            assert attrgetter(path)(usable) == attrgetter(path)(first)
    for key, paths in LIVE.items():
        for path in paths:
            assert key == "auth" or attrgetter(path)(usable) == attrgetter(path)(other)


def test_the_default_audience_is_that_of_the_running_url(both: tuple[Config, Config]) -> None:
    """Otherwise all tokens would be refused until the restart."""
    (method,) = with_running(*both).auth
    assert isinstance(method, OAuthIssuer)
    assert method.audience == ("http://localhost:8080",)


def test_a_key_has_its_place(both: tuple[Config, Config]) -> None:
    """Or that of the nearest one above it."""
    lines = OTHER.splitlines()
    line, column = place_of(both[1], "server.drain.timeout")
    assert lines[line - 1][column - 1 :].startswith("timeout: 2s")
    assert lines[place_of(both[1], "log.level")[0] - 1] == "log: json"
    assert place_of(both[1], "nothing") == (1, 1)


def test_a_replaced_file_of_certificates_is_a_change(tmp_path: Path) -> None:
    """The settings are the same, and the credential that reads it is made anew."""
    (tmp_path / "page.html").write_text("<!doctype html>")
    (tmp_path / "one.yaml").write_text("version: 1\n")
    file = tmp_path / "ca.pem"
    server = f"issuer: https://login.example, client_id: us, client_auth: none, authorities: {file.name}"
    text = f"{PLAIN}credentials: {{person: {{type: authorization_code, {server}}}}}\n"
    (tmp_path / "gateway.yaml").write_text(text)
    found = []
    for _ in range(2):
        file.write_bytes(self_signed("login.example")[0])
        found.append(load_config(tmp_path / "gateway.yaml", {}))
    assert live_changes(*found) == [str(file)]
    assert live_changes(found[0], found[0]) == []
