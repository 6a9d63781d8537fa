"""Builds the record from the configuration: the journal with its key, the sinks, the maintenance jobs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from gateway import __version__
from gateway.assembly.otlp import Collector, OtlpLogs
from gateway.backends.connect import Connections
from gateway.config import Config, Notice, NoticeKind, Notices, SinkName
from gateway.errors import Problem, StartError
from gateway.exchange.record import OnFailure, Recorder
from gateway.hooks import Hooks
from gateway.model import Json, Secret
from gateway.stores.copying import Sink
from gateway.stores.filler import Filler, FillProcess, filling
from gateway.stores.heads import JournalKey, key_in, key_of, keys_beside, remember
from gateway.stores.journal import Journal, Keeping
from gateway.stores.records import Records
from gateway.stores.retention import Retention
from gateway.telemetry import Metrics
from gateway.traces import Tracer

if TYPE_CHECKING:
    from gateway.assembly.spans import Spans  # it needs the extra `otlp`

RESOURCE: Final[Json] = {
    "attributes": [
        {"key": "service.name", "value": {"stringValue": "webmcp-gateway"}},
        {"key": "service.version", "value": {"stringValue": __version__}},
    ]
}

Job = Coroutine[None, None, None]


def journal(config: Config) -> Journal:
    """Build the journal. Raises `StartError` if its key is unusable."""
    audit = config.audit
    keeping = Keeping(audit.fsync, audit.rotate_size, audit.rotate_every)
    key = key_of_journal(config)
    remember(keys_beside(config.journal), key.public)
    return Journal(
        config.journal, redact=audit.redact, key=key, keeping=keeping, opening={"policies": _policies(config)}
    )


def _policies(config: Config) -> dict[str, Json]:
    """Return the version of each policy in effect at the start: it may have changed while the gateway was down."""
    policies = {name: app.policy for name, app in config.apps.items()}
    policies |= {name: one.policy for name, one in config.upstreams.items() if one.policy is not None}
    return {name: policy.version for name, policy in policies.items()}


def key_of_journal(config: Config) -> JournalKey:
    """Return the key that signs the journal's heads. Raises `StartError`."""
    if config.audit.key is None:
        return key_in(config.audit.key_file)
    try:
        return key_of(config.audit.key.reveal())
    except ValueError as error:
        raise StartError(f"audit.key {error}; give 32 bytes in base64") from error


class AuditParts:
    """The record and its background jobs, as configured; `authorization` returns what a collector is sent now.

    Raises `StartError` if it cannot be built.
    """

    def __init__(
        self,
        config: Config,
        *,
        records: Records,
        connections: Connections,
        metrics: Metrics,
        notices: Notices,
        authorization: Callable[[], Secret],
    ) -> None:
        telemetry = config.telemetry
        self.journal = journal(config)
        self._config = config
        self._records = records
        self._metrics = metrics
        self._notices = notices
        self._collector = (
            Collector(telemetry.otlp, authorization, telemetry.network, connections)
            if telemetry.otlp is not None
            else None
        )
        self._recorder: Recorder | None = None
        self._spans = _spans(self._collector, metrics) if self._collector is not None else None

    def recorder(self, hooks: Hooks) -> Recorder:
        """Return the recorder, which starts the record of each exchange."""
        tracer = Tracer(self._spans.provider() if self._spans is not None else None)
        on_failure = OnFailure(self._config.audit.on_failure)
        self._recorder = Recorder(
            self.journal,
            hooks,
            on_failure,
            self._metrics,
            tracer,
            self._teller("journal"),
            refusals=self._config.audit.refusals,
        )
        return self._recorder

    def filling(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager that fills each sink from the journal, to the last line at its end."""
        fillers = list[Filler]()
        for sink in self._sinks():
            aside = FillProcess(self._config.database.reveal()) if sink is self._records else None
            filler = Filler(sink, self.journal, self._metrics, self._teller(f"sink {sink.name}"), aside)
            if aside is not None:
                self._records.follow(filler.caught_up)
            fillers.append(filler)
        return filling(self.journal, fillers)

    def jobs(self) -> list[Job]:
        """Return the background jobs: heads and rotation of the journal, retention, traces."""
        audit = self._config.audit
        sinks = [self.journal.keep()]
        if self._recorder is not None:
            sinks.append(self._recorder.keep())
        if audit.retain is not None:
            sinks.append(Retention(self.journal, self._records.database, audit.retain).run())
        if self._spans is not None:
            sinks.append(self._spans.run())
        return sinks

    def _sinks(self) -> list[Sink]:
        path = self._config.journal
        sinks: list[Sink] = []
        if SinkName.DATABASE in self._config.audit.sinks:
            sinks.append(self._records)
        if SinkName.OTLP in self._config.audit.sinks and self._collector is not None:
            sinks.append(OtlpLogs(self._collector, path.with_name(f"{path.name}.otlp"), RESOURCE))
        return sinks

    def _teller(self, source: str) -> Callable[[str | None], None]:
        place = str(self._config.journal)

        def tell(trouble: str | None) -> None:
            notices = [Notice(NoticeKind.RECORD, Problem(place, 1, 1, trouble))] if trouble is not None else []
            self._notices.say(notices, source)

        return tell


def _spans(collector: Collector, metrics: Metrics) -> Spans:
    if find_spec("opentelemetry.sdk") is None:
        raise StartError("telemetry.otlp needs the OpenTelemetry SDK: pip install 'webmcp-gateway[otlp]'")
    spans: Spans = import_module("gateway.assembly.spans").Spans(collector, metrics)
    return spans
