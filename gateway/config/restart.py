"""Which settings of gateway.yaml were changed that take effect only at the next start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gateway.config.audit import Audit, Telemetry
from gateway.config.nouns import Config
from gateway.credentials import ClientCredentials
from gateway.documents import load
from gateway.errors import DocumentError, Problem
from gateway.model import Secret

_HIDDEN = Secret("")


def restart_problems(running: Config, found: Config, file: str) -> tuple[Problem, ...]:
    """A problem for each setting in which `found` differs from `running` and that waits for a restart.

    `file` is what gateway.yaml is called in messages.
    """
    places = _places(found, file)
    return tuple(
        Problem(file, *places.get(key, (1, 1)), f"{key}: {message}; it takes effect at the next start")
        for key, message in _changed(running, found)
    )


def _changed(running: Config, found: Config) -> Iterator[tuple[str, str]]:
    pairs = {
        "server": (running.server, found.server),
        "auth": (running.auth, found.auth),
        "credentials": (_comparable(running), _comparable(found)),
        "stores": (_stores(running), _stores(found)),
        "approvals": (running.approvals, found.approvals),
        "mcp": (running.mcp, found.mcp),
        "audit": (_audit(running), _audit(found)),
        "telemetry": (_telemetry(running), _telemetry(found)),
        "log": (running.log, found.log),
        "plugins": (running.plugins, found.plugins),
    }
    yield from ((key, "was changed") for key, (old, new) in pairs.items() if old != new)


def _stores(config: Config) -> tuple[str, Path]:
    return config.database.reveal(), config.journal


def _audit(config: Config) -> tuple[Audit, str]:
    key = config.audit.key
    return replace(config.audit, key=None), key.reveal() if key is not None else ""


def _telemetry(config: Config) -> tuple[Telemetry, str]:
    return replace(config.telemetry, authorization=_HIDDEN), config.telemetry.authorization.reveal()


def _comparable(config: Config) -> dict[str, tuple[ClientCredentials, str]]:
    """The credentials such that equal ones are equal: a `Secret` is equal to itself alone."""
    return {
        name: (replace(one, client_secret=_HIDDEN), one.client_secret.reveal())
        for name, one in config.credentials.items()
    }


def _places(config: Config, file: str) -> dict[str, tuple[int, int]]:
    try:
        return dict(load(config.path.read_text("utf-8"), file).keys)
    except (OSError, UnicodeError, DocumentError):
        return {}
