"""How the record is built from the configuration: the journal with its key, the sinks that it fills, what keeps it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from gateway.backends.connect import Connections
from gateway.config import Config, Kind, Notice, Notices, SinkName
from gateway.errors import Problem, StartError
from gateway.stores.filler import Filler, Sink
from gateway.stores.heads import Key, key_in, key_of
from gateway.stores.journal import Journal, Keeping
from gateway.stores.records import Records
from gateway.stores.retention import Retention
from gateway.telemetry import Metrics

Job = Coroutine[None, None, None]


def journal(config: Config) -> Journal:
    """The journal. Raises StartError where its key cannot be used."""
    audit = config.audit
    keeping = Keeping(audit.fsync, audit.rotate_size, audit.rotate_every)
    return Journal(config.journal, redact=audit.redact, key=key_of_journal(config), keeping=keeping)


def key_of_journal(config: Config) -> Key:
    """The key that signs its heads. Raises StartError."""
    if config.audit.key is None:
        return key_in(config.audit.key_file)
    try:
        return key_of(config.audit.key.reveal())
    except ValueError as error:
        raise StartError(f"audit.key {error}; give 32 bytes in base64") from error


def jobs(
    config: Config,
    *,
    journal: Journal,
    records: Records,
    connections: Connections,
    metrics: Metrics,
    notices: Notices,
) -> list[Job]:
    """What runs as long as the gateway does: heads and new files, and one filler for each sink."""
    sinks: list[Sink] = []
    if SinkName.DATABASE in config.audit.sinks:
        sinks.append(records)
    found = [journal.keep(), *(Filler(sink, journal, metrics, _teller(config, notices, sink)).run() for sink in sinks)]
    if config.audit.retain is not None:
        found.append(Retention(journal, records.database, config.audit.retain).run())
    return found


def _teller(config: Config, notices: Notices, sink: Sink) -> Callable[[str | None], None]:
    def tell(trouble: str | None) -> None:
        told = [Notice(Kind.RECORD, Problem(str(config.journal), 1, 1, trouble))] if trouble is not None else []
        notices.say(told, f"sink {sink.name}")

    return tell
