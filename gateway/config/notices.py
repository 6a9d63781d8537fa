"""Notices about the running configuration: errors, and changes that take effect only at the next start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum

from gateway.config.secrets import PendingSecret
from gateway.config.upstreams import UpstreamSettings
from gateway.config.values import Config
from gateway.documents import load
from gateway.documents.nodes import MAX_SIZE
from gateway.documents.reader import read_bytes
from gateway.errors import DocumentError, Problem
from gateway.model import Secret


def restart_problems(running: Config, found: Config, file: str) -> tuple[Problem, ...]:
    """Return a problem for each setting of `found` that differs from `running` and needs a restart.

    `file` is the name of gateway.yaml in messages.
    """
    places = _places(found, file)
    return tuple(
        Problem(file, *places.get(key, (1, 1)), f"{key}: {message}; it takes effect at the next start")
        for key, message in _list_changes(running, found)
    )


def _list_changes(running: Config, found: Config) -> Iterator[tuple[str, str]]:
    pairs = {
        "server": (running.server, found.server),
        "auth": (_comparable(running.auth), _comparable(found.auth)),
        "roles": (running.roles, found.roles),
        "credentials": (_comparable(running.credentials), _comparable(found.credentials)),
        "stores": (_stores(running), _stores(found)),
        "approvals": (running.approvals, found.approvals),
        "mcp": (running.mcp, found.mcp),
        "audit": (_comparable(running.audit), _comparable(found.audit)),
        "telemetry": (_comparable(running.telemetry), _comparable(found.telemetry)),
        "log": (running.log, found.log),
        "access_log": (running.access_log, found.access_log),
        "plugins": (running.plugins, found.plugins),
    }
    yield from ((key, "was changed") for key, (old, new) in pairs.items() if old != new)


def same_connection(old: UpstreamSettings, new: UpstreamSettings) -> bool:
    """Return whether an upstream's connection settings are unchanged, so that its connections can stay."""
    return _connection(old) == _connection(new)


def same_upstream(old: UpstreamSettings, new: UpstreamSettings) -> bool:
    """Return whether an upstream is unchanged, including its policy."""
    plain = [_comparable(replace(one, policy=None, access=None)) for one in (old, new)]
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
    return _comparable(plain)


def _version(one: UpstreamSettings) -> object:
    return one.policy and (one.policy.file, one.policy.version)


def _stores(config: Config) -> object:
    return config.database.reveal(), config.journal, _comparable(config.encryption_key)


def _comparable(value: object) -> object:
    """Return a value that compares by content: a `Secret` compares by identity."""
    match value:
        case PendingSecret():
            return value.reference
        case Secret():
            return value.reveal()
        case Mapping():
            return {key: _comparable(one) for key, one in value.items()}
        case tuple():
            return tuple(_comparable(one) for one in value)
        case _ if is_dataclass(value):
            return type(value), {field.name: _comparable(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value


def _places(config: Config, file: str) -> dict[str, tuple[int, int]]:
    try:
        return dict(load(read_bytes(config.path, MAX_SIZE).decode(), file).keys)
    except (OSError, UnicodeError, DocumentError):
        return {}


class NoticeKind(StrEnum):
    """The subject of a notice.

    A record that cannot be kept as configured, a file that was not applied, an upstream that fails or changed, a change
    that waits for a restart, report mode.
    """

    RECORD = "record"
    BROKEN = "broken"
    UPSTREAM = "upstream"
    RESTART = "restart"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice, with its place in a file, and the app that it is about, if it is about one."""

    kind: NoticeKind
    problem: Problem
    app: str = ""


class Notices:
    """The current notices, by source."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[Notice, ...]] = {}
        self._watchers: set[Callable[[], None]] = set()

    def now(self) -> tuple[Notice, ...]:
        """Return all notices, most important first."""
        everything = [notice for notices in self._said.values() for notice in notices]
        return tuple(sorted(everything, key=lambda notice: list(NoticeKind).index(notice.kind)))

    def say(self, notices: Sequence[Notice], source: str = "files") -> bool:
        """Replace the notices of `source`; return whether they changed."""
        if tuple(notices) == self._said.get(source, ()):
            return False
        self._said[source] = tuple(notices)
        for watcher in list(self._watchers):
            watcher()
        return True

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the notices change; the result unsubscribes it."""
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)
