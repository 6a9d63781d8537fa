"""Notices about the running configuration: errors, and changes that take effect only at the next start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

from gateway.callers.methods import OAuthIssuer
from gateway.config.secrets import PendingSecret
from gateway.config.upstreams import UpstreamSettings
from gateway.config.values import Config
from gateway.documents import Node, load
from gateway.documents.nodes import MAX_SIZE
from gateway.documents.reader import read_bytes
from gateway.errors import DocumentError, Problem
from gateway.model import Secret
from gateway.watchers import Watchers

RESTART: Final[Mapping[str, tuple[str, ...]]] = {
    "server.listen": ("server.host", "server.port"),
    "server.public_url": ("server.public_url",),
    "server.state_dir": ("server.state_dir",),
    "server.admin_listen": ("server.admin",),
    "server.origins.console": ("server.origins.console",),
    "server.origins.apps": ("server.origins.apps",),
    "server.origins.sandbox": ("server.origins.sandbox",),
    "server.origins.dedicated": ("server.origins.dedicated",),
    "server.busy_poll": ("server.busy_poll",),
    "server.http_client": ("server.http_client",),
    "stores.database": ("database",),
    "stores.redis": ("redis",),
    "stores.journal": ("journal",),
    "stores.encryption_key": ("encryption_key",),
    "cluster": ("cluster",),
    "approvals.presence": ("approvals.presence",),
    "audit.on_failure": ("audit.on_failure",),
    "audit.redact": ("audit.redact",),
    "audit.sinks": ("audit.sinks",),
    "audit.retain": ("audit.retain",),
    "audit.fsync": ("audit.fsync",),
    "audit.refusals": ("audit.refusals",),
    "audit.key": ("audit.key", "audit.key_file"),
    "audit.rotate.size": ("audit.rotate_size",),
    "audit.rotate.every": ("audit.rotate_every",),
    "mcp.fast_path": ("mcp.fast_path",),
    "mcp.session_idle": ("mcp.session_idle",),
    "telemetry.otlp": ("telemetry.otlp",),
    "telemetry.network": ("telemetry.network",),
    "telemetry.authorities": ("telemetry.network",),
    "plugins": ("plugins",),
}
"""The settings that take effect at the next start, with the attributes of `Config` that hold them.

They are open sockets, files and databases; names that browsers, issuers and signed addresses know; and code.
A key stands for all below it.
"""

LIVE: Final[Mapping[str, tuple[str, ...]]] = {
    "server.admin_hosts": ("server.admin_hosts",),
    "server.drain.announce": ("server.announce",),
    "server.drain.timeout": ("server.drain",),
    "server.trusted_proxies": ("server.trusted_proxies",),
    "server.client_header": ("server.client_header",),
    "server.fast_path": ("server.fast_path",),
    "server.connections": ("server.connections",),
    "server.connections_each": ("server.connections_each",),
    "server.requests_each": ("server.requests_each",),
    "auth": ("auth",),
    "roles": ("roles",),
    "hosts": ("hosts",),
    "credentials": ("credentials",),
    "log": ("log",),
    "access_log": ("access_log",),
    "approvals.ask": ("approvals.ask",),
    "approvals.timeout": ("approvals.timeout",),
    "approvals.interactive": ("approvals.interactive",),
    "approvals.webhook": ("approvals.webhook",),
    "mcp.sessions": ("mcp.sessions",),
    "mcp.sessions_each": ("mcp.sessions_each",),
    "mcp.views_each": ("mcp.views_each",),
    "mcp.bodies": ("mcp.bodies",),
    "mcp.bodies_each": ("mcp.bodies_each",),
    "telemetry.authorization": ("telemetry.authorization",),
}
"""The same for those that take effect while the gateway runs, beside `apps`, `upstreams` and `policy`.

A key stands for all below it.
"""


def restart_problems(running: Config, new_config: Config, file: str) -> tuple[Problem, ...]:
    """Return a problem for each setting of `new_config` that differs from `running` and needs a restart.

    `file` is the name of gateway.yaml in messages.
    """
    keys = restart_keys(running, new_config)
    root = _root(new_config, file) if keys else None
    return tuple(
        Problem(file, *_place(root, key), f"{key}: was changed; it takes effect at the next start") for key in keys
    )


def restart_keys(running: Config, new_config: Config) -> list[str]:
    """Return the settings that differ and need a restart."""
    changed = [key for key, paths in RESTART.items() if _differ(running, new_config, paths)]
    if "server.state_dir" not in changed:
        return changed
    follow = ("stores.database", "stores.journal", "stores.encryption_key", "audit.key")  # their paths are below it
    return [key for key in changed if key not in follow]


def live_changes(running: Config, new_config: Config) -> list[str]:
    """Return the settings that differ and can change while the gateway runs, but for apps and upstreams."""
    changed = [key for key, paths in LIVE.items() if _differ(running, new_config, paths)]
    files = [file for file in new_config.files if new_config.files[file] != running.files.get(file)]
    return changed + [str(file) for file in files if file in running.files]


def with_running(running: Config, new_config: Config) -> Config:
    """Return the configuration `new_config` as far as it can take effect without a restart.

    Its audiences that are the public URL, as is the default, are those of the public URL in use.
    """
    config = new_config
    for path in {path for paths in RESTART.values() for path in paths}:
        config = _replace_at(config, path.split("."), _value(running, path))
    public, public_now = running.server.public_url, new_config.server.public_url
    auth = tuple(
        replace(method, audience=tuple(public if one == public_now else one for one in method.audience))
        if isinstance(method, OAuthIssuer)
        else method
        for method in config.auth
    )
    return replace(config, auth=auth)


def _differ(one: Config, other: Config, paths: Sequence[str]) -> bool:
    return any(comparable(_value(one, path)) != comparable(_value(other, path)) for path in paths)


def _value(config: Config, path: str) -> object:
    return attrgetter(path)(config)


def _replace_at(value: Any, path: Sequence[str], new: object) -> Any:
    name, *rest = path
    return replace(value, **{name: _replace_at(getattr(value, name), rest, new) if rest else new})


def same_connection(old: UpstreamSettings, new: UpstreamSettings) -> bool:
    """Return whether an upstream's connection settings are unchanged, so that its connections can stay."""
    return _connection(old) == _connection(new)


def same_upstream(old: UpstreamSettings, new: UpstreamSettings) -> bool:
    """Return whether an upstream is unchanged, including its policy."""
    plain = [comparable(replace(one, policy=None, access=None)) for one in (old, new)]
    return plain[0] == plain[1] and _version(old) == _version(new) and old.access == new.access


def _connection(one: UpstreamSettings) -> object:
    plain = replace(
        one,
        prefix=None,
        include=(),
        exclude=(),
        policy=None,
        trust=None,
        runtime=False,
        allow=(),
        lazy=True,
        access=None,
    )
    return comparable(plain)


def _version(one: UpstreamSettings) -> object:
    return one.policy and (one.policy.file, one.policy.version)


def comparable(value: object) -> object:
    """Return a value that compares by content: a `Secret` compares by identity."""
    match value:
        case PendingSecret():
            return value.reference
        case Secret():
            return value.reveal()
        case Mapping():
            return {key: comparable(one) for key, one in value.items()}
        case tuple():
            return tuple(comparable(one) for one in value)
        case _ if is_dataclass(value):
            return type(value), {field.name: comparable(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


def _root(config: Config, file: str) -> Node | None:
    try:
        return load(read_bytes(config.path, MAX_SIZE).decode(), file)
    except (OSError, UnicodeError, DocumentError):
        return None


def place_of(config: Config, key: str) -> tuple[int, int]:
    """Return the line and column of a key in gateway.yaml, or of the nearest one above it."""
    return _place(_root(config, str(config.path)), key)


def _place(root: Node | None, key: str) -> tuple[int, int]:
    """Return the line and column of a key, or of the nearest one above it."""
    place, node = (1, 1), root
    for name in key.split("."):
        if node is None or name not in node.keys:
            break
        place, node = node.keys[name], node.value[name] if isinstance(node.value, Mapping) else None
    return place


class NoticeKind(StrEnum):
    """The subject of a notice.

    A record that cannot be kept as configured, a file that was not applied, an upstream that fails or changed, a change
    that waits for a restart, an app whose page no view can show, report mode.
    """

    RECORD = "record"
    BROKEN = "broken"
    UPSTREAM = "upstream"
    RESTART = "restart"
    VIEW = "view"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice, with its place in a file, and the app that it is about, if it is about one."""

    kind: NoticeKind
    problem: Problem
    app: str = ""


def active_reports(config: Config, now: float) -> Iterator[Notice]:
    """Yield a notice for each app whose policy is in report mode; `now` is in seconds since the epoch."""
    for app in config.apps.values():
        mode = app.policy.mode
        if mode is not None and mode.active(now):
            message = f"{app.title}: report mode until {mode.date}: what no rule allows is let through"
            yield Notice(NoticeKind.REPORT, Problem(app.policy.file, 1, 1, message), app.id)


class Notices:
    """The current notices, by source."""

    def __init__(self) -> None:
        self._logged: dict[str, tuple[Notice, ...]] = {}
        self._watchers = Watchers[[]]()

    def now(self) -> tuple[Notice, ...]:
        """Return all notices, most important first."""
        everything = [notice for notices in self._logged.values() for notice in notices]
        return tuple(sorted(everything, key=lambda notice: list(NoticeKind).index(notice.kind)))

    def say(self, notices: Sequence[Notice], source: str = "files") -> bool:
        """Replace the notices of `source`; return whether they changed."""
        if tuple(notices) == self._logged.get(source, ()):
            return False
        self._logged[source] = tuple(notices)
        self._watchers.notify()
        return True

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the notices change; the result unsubscribes it."""
        return self._watchers.add(callback)
