"""Reads `audit`, `telemetry` and the servers of `stores`: how the record is kept, and its destinations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from gateway.config import locations
from gateway.config.locations import network, read_state_dir, real_path
from gateway.config.secrets import UNSET, config_text, secret
from gateway.config.settings import DEFAULTS
from gateway.documents import Report, Section, load, parse_size
from gateway.errors import DocumentError
from gateway.model import Secret
from gateway.policy import Network


@dataclass(frozen=True, slots=True)
class Places:
    """The journal, the database, and the key that signs heads: itself, or its file.

    `fills_database` means that the gateway copies the journal into the database.
    """

    journal: Path
    database: Secret
    key: Secret | None
    key_file: Path
    fills_database: bool


def record_places(path: Path, environ: Mapping[str, str]) -> Places:
    """Return the locations in the configuration in `path`. Raises DocumentError."""
    text = config_text(path)
    folder = real_path(path).parent
    report = Report([])
    root = report.section(load(text, str(path)))
    stores, audit = root.section("stores"), root.section("audit")
    state = read_state_dir(root.section("server"), folder) or folder
    journal = journal_path(stores, state)
    places = Places(
        journal=journal,
        database=database(stores, folder, state, environ),
        key=secret(audit, "key", folder, environ) if audit.get("key") is not None else None,
        key_file=journal.with_name(f"{journal.name}.key"),
        fills_database=SinkName.DATABASE in audit.texts("sinks", (SinkName.DATABASE.value,)),
    )
    if report.problems:
        raise DocumentError(report.problems)
    return places


_REDACT = re.compile(r"""\$(\.{1,2}([A-Za-z_][\w-]*|\*)|\[\*\]|\['[^']+'\])+""")
_POSTGRESQL = re.compile(r"postgres(ql)?(\+asyncpg)?://[^/]+/\S+")


class SinkName(StrEnum):
    """A destination of the record beside the journal."""

    DATABASE = "database"
    OTLP = "otlp"


@dataclass(frozen=True, slots=True)
class Audit:
    """Settings of the record. `on_failure` is `refuse-unsafe`, `refuse` or `continue`; `retain` is in seconds.

    `key` signs the heads; if it is None, the file `key_file` has it. The journal rotates after `rotate_size` bytes, and
    every `rotate_every` seconds. `refusals` is how many refusals of a caller are recorded separately per minute.
    """

    on_failure: str
    redact: tuple[str, ...]
    sinks: tuple[SinkName, ...]
    retain: float | None
    fsync: bool
    key: Secret | None
    key_file: Path
    rotate_size: int
    rotate_every: float | None
    refusals: int


@dataclass(frozen=True, slots=True)
class Telemetry:
    """The destination of traces, and of the record as logs: base URL of an OTLP/HTTP collector, or None."""

    otlp: str | None
    authorization: Secret
    network: Network


def journal_path(stores: Section, state: Path) -> Path:
    """Read `stores.journal`, relative to the state folder."""
    default = state / DEFAULTS["stores.journal"]
    journal = state / stores.text("journal", str(default))
    if journal.name and not journal.is_dir():
        return journal
    stores.problem("write the path of a file", "journal")
    return default


def audit(section: Section, telemetry: Telemetry, journal: Path, folder: Path, environ: Mapping[str, str]) -> Audit:
    """Read the section `audit`."""
    redact = section.texts("redact")
    for path in redact:
        if not _REDACT.fullmatch(path):
            section.problem(f"{path!r} is not a path such as $.password, $..token or $.items[*].name", "redact")
    failures = ("refuse-unsafe", "refuse", "continue")
    rotate = section.section("rotate")
    return Audit(
        on_failure=section.choice("on_failure", failures, DEFAULTS["audit.on_failure"]),
        redact=redact,
        sinks=_sinks(section, telemetry),
        retain=section.duration("retain") if section.get("retain") is not None else None,
        fsync=section.choice("fsync", ("always", "never"), DEFAULTS["audit.fsync"]) == "always",
        key=secret(section, "key", folder, environ) if section.get("key") is not None else None,
        key_file=journal.with_name(f"{journal.name}.key"),
        rotate_size=rotate.size("size", parse_size(DEFAULTS["audit.rotate.size"])),
        rotate_every=rotate.duration("every") if rotate.get("every") is not None else None,
        refusals=section.integer("refusals", int(DEFAULTS["audit.refusals"]), minimum=1),
    )


def telemetry(section: Section, folder: Path, environ: Mapping[str, str]) -> Telemetry:
    """Read the section `telemetry`."""
    return Telemetry(
        otlp=_collector(section) if section.get("otlp") is not None else None,
        authorization=secret(section, "authorization", folder, environ) if section.get("authorization") else Secret(""),
        network=network(section, DEFAULTS["telemetry.network"], folder),
    )


def database(section: Section, folder: Path, state: Path, environ: Mapping[str, str]) -> Secret:
    """Read the URL of the database: of SQLite with an absolute path, or of PostgreSQL.

    Its path is relative to `state`, that of a file with the URL to `folder`.
    """
    if section.get("database") is None:
        return Secret(f"sqlite:///{state / DEFAULTS['stores.database'].removeprefix('sqlite:///')}")
    url = secret(section, "database", folder, environ).reveal()
    if _POSTGRESQL.fullmatch(url) or url == UNSET:
        return Secret(url)
    scheme, _, place = url.partition(":///")
    path = state / place
    if scheme != "sqlite" or not place or place == ":memory:":
        section.problem("write sqlite:///path, or postgresql://user:password@host/name", "database")
    elif path.parent != state and not path.parent.is_dir():
        section.problem(f"there is no folder {path.parent}", "database")
    return Secret(f"sqlite:///{path}")


REDIS_TLS: Final = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
"""What the URL of a Redis may name after `?`: files for TLS, as redis-py calls them."""

_REDIS: Final = re.compile(r"(/[0-9]{1,4})?", re.ASCII)


def redis(section: Section, folder: Path, environ: Mapping[str, str]) -> Secret | None:
    """Read the URL of the Redis that several gateways share; None if there is none."""
    if section.get("redis") is None:
        return None
    url = secret(section, "redis", folder, environ)
    if url.reveal() != UNSET and not _is_redis(url.reveal()):
        section.problem(
            "write redis://user:password@host:6379/0, or rediss://… for TLS, where ?ssl_ca_certs=path may name "
            "certificate authorities",
            "redis",
        )
    return url


def _is_redis(text: str) -> bool:
    try:
        url = urlsplit(text)
        port = 6379 if url.port is None else url.port
    except ValueError:
        return False
    options = {name for name, _ in parse_qsl(url.query, keep_blank_values=True)}
    allowed = REDIS_TLS if url.scheme == "rediss" else frozenset[str]()
    plain = url.hostname and 0 < port < 65536 and not url.fragment and text.isprintable() and " " not in text
    return bool(plain and url.scheme in ("redis", "rediss") and _REDIS.fullmatch(url.path) and options <= allowed)


def _collector(section: Section) -> str:
    url = section.text("otlp")
    try:
        form = urlsplit(url)
        good = form.scheme in ("http", "https") and bool(form.hostname) and not form.query and not form.fragment
    except ValueError:
        good = False
    if not good:
        section.problem("write the base URL of an OTLP/HTTP collector, such as http://127.0.0.1:4318", "otlp")
    elif form.scheme == "http" and "authorization" in section and not locations.is_loopback(form.hostname or ""):
        section.problem("write https: the authorization goes over this connection", "otlp")
    return url.rstrip("/")


def _sinks(section: Section, telemetry: Telemetry) -> tuple[SinkName, ...]:
    words = section.texts("sinks", (SinkName.DATABASE.value,))
    for word in words:
        if word not in list(SinkName):
            section.problem(f"{word!r} is not a sink: write database or otlp", "sinks")
        elif word == SinkName.OTLP and telemetry.otlp is None:
            section.problem("the sink otlp needs telemetry.otlp, the URL of a collector", "sinks")
    return tuple(sink for sink in SinkName if sink.value in words)
