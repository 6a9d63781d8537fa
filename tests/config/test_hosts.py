"""`hosts`: what is read, and what is refused with its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.callers.methods import HostSite
from gateway.config import load_config
from gateway.errors import DocumentError

OAUTH = "[{type: oauth, issuer: https://login.example.com}]"
REST = "issuer: https://login.example.com, client_id: chat, client_secret: kX4chat-secret-Q9v7Lr2m"


def load_hosts(folder: Path, hosts: str, auth: str = OAUTH) -> tuple[HostSite, ...]:
    """Return the hosts of a configuration with the app `cart` and the upstream `shop`."""
    (folder / "page.html").write_text("<!doctype html>", "utf-8")
    (folder / "policy.yaml").write_text("version: 1\n", "utf-8")
    (folder / "keys.json").write_text('{"keys": [{"kty": "oct", "k": "AAAA"}]}', "utf-8")
    text = (
        "server: {public_url: https://gateway.example.com, origins: {console: https://gateway.example.com, "
        "sandbox: https://sandbox.example.org, apps: 'https://{app}.example.net'}}\n"
        f"auth: {auth}\nhosts:\n  {hosts}\n"
        "upstreams: {shop: {url: https://mcp.example.com/mcp}}\n"
        "apps: {cart: {source: page.html, policy: policy.yaml}}\n"
    )
    (folder / "gateway.yaml").write_text(text, "utf-8")
    return load_config(folder / "gateway.yaml", {}).hosts


def test_a_host_may_open_apps_and_upstreams(tmp_path: Path) -> None:
    """Its name is by default that of its origin, which is written as browsers do."""
    [host] = load_hosts(tmp_path, f"- {{origin: 'HTTPS://Chat.example.com:443', apps: [cart, shop], {REST}}}")
    assert (host.origin, host.name, host.apps, host.attest) == (
        "https://chat.example.com",
        "chat.example.com",
        ("cart", "shop"),
        False,
    )
    assert "kX4chat-secret-Q9v7Lr2m" not in repr(host)
    [local] = load_hosts(tmp_path, "- {origin: 'http://localhost:5173', apps: [cart]}", "[none]")
    assert (local.issuer, local.client_id) == (None, None)


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("https://chat.example.com:08443", "https://chat.example.com:8443"),
        ("https://chat.example.com:00443", "https://chat.example.com"),
        ("http://[0:0:0:0:0:0:0:1]:05173", "http://[::1]:5173"),
        ("http://[0::0001]", "http://[::1]"),
        ("http://LOCALHOST:080", "http://localhost"),
    ],
)
def test_an_origin_is_compared_as_browsers_send_it(tmp_path: Path, written: str, sent: str) -> None:
    """Else an entry would match no request."""
    [host] = load_hosts(tmp_path, f"- {{origin: '{written}', apps: [cart]}}", "[none]")
    assert host.origin == sent


CHAT = "origin: https://chat.example.com, apps: [cart]"
AT, KEY = "issuer: https://login.example.com", "client_secret: kX4chat-secret-Q9v7Lr2m"


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ("- https://chat.example.com", "hosts: write {origin: https://chat.example.com, apps: [cart]}"),
        ("- {apps: [cart]}", "origin"),
        (f"- {{origin: https://chat.example.com, {REST}}}", "apps"),
        (f"- {{origin: https://chat.example.com, apps: [], {REST}}}", "name the apps and upstreams"),
        (f"- {{origin: https://chat.example.com, apps: [crat], {REST}}}", "'crat' is neither an app nor an upstream"),
        (f"- {{origin: https://chat.example.com/x, apps: [cart], {REST}}}", "origin"),
        (f"- {{origin: '*', apps: [cart], {REST}}}", "origin"),
        (f"- {{origin: http://chat.example.com, apps: [cart], {REST}}}", "write https"),
        (f"- {{origin: https://gateway.example.com, apps: [cart], {REST}}}", "the gateway's own"),
        (f"- {{origin: https://cart.example.net, apps: [cart], {REST}}}", "the gateway's own"),
        (f"- {{{CHAT}}}", "name the `issuer` of its people"),
        (f"- {{{CHAT}, issuer: https://login.example.com, client_id: chat}}", "`client_secret` (or `jwks`)"),
        (f"- {{{CHAT}, {REST}, jwks: keys.json}}", "`client_secret` (or `jwks`)"),
        (f"- {{{CHAT}, issuer: https://other.example.com, client_id: c, {KEY}}}", "no oauth issuer"),
        (f"- {{{CHAT}, {AT}, client_id: c, client_secret: short}}", "could be guessed"),
        (f"- {{{CHAT}, {AT}, client_id: 'a b', {KEY}}}", "without spaces"),
        (f"- {{{CHAT}, {AT}, client_id: c, jwks: none.json}}", "cannot be read"),
        (f"- {{{CHAT}, {AT}, client_id: c, jwks: keys.json}}", "no public key"),
        (f"- {{{CHAT}, {REST}}}\n  - {{{CHAT}, {REST}}}", "occurs here twice"),
        (f"- {{{CHAT}, {REST}, approve: true}}", 'unknown key "approve"'),
    ],
)
def test_a_wrong_entry_is_refused(tmp_path: Path, hosts: str, message: str) -> None:
    """With what is wrong, and the remedy."""
    with pytest.raises(DocumentError) as refused:
        load_hosts(tmp_path, hosts)
    assert any(message in str(problem) for problem in refused.value.problems), refused.value.problems


@pytest.mark.parametrize(
    ("auth", "message"), [("[none]", "is for people who log in"), ("[token]", "none under `auth`")]
)
def test_people_of_a_host_log_in_at_an_issuer(tmp_path: Path, auth: str, message: str) -> None:
    """Without authentication there are none, and tokens of the gateway are not exchanged."""
    with pytest.raises(DocumentError) as refused:
        load_hosts(tmp_path, f"- {{{CHAT}, {REST}}}", auth)
    assert any(message in str(problem) for problem in refused.value.problems), refused.value.problems
