"""Counts exceeded bounds, and reports sums in the log and in the record."""

from __future__ import annotations

import logging
from typing import Final

from gateway.bounds import Bound
from gateway.client_address import CLIENT
from gateway.exchange.record import Recorder
from gateway.exchange.refusals import BOUND
from gateway.telemetry import Metrics
from gateway.throttle import ThrottledLog

log: Final = logging.getLogger(__name__)


class Excess:
    """Reports each exceeded bound, and counts it in `metrics`."""

    def __init__(self, metrics: Metrics, recorder: Recorder) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._log = ThrottledLog(log)

    def note(self, bound: Bound, by: str | None, client: str | None) -> None:
        """The principal `by`, or an unknown caller at the address `client`, exceeded a bound."""
        client = client or CLIENT.get()
        self._metrics.bounds_exceeded.add(bound.what)
        self._log.write(
            logging.WARNING,
            f"beyond the bound of {bound.what}",
            "%s went beyond the bound of %s (%s)",
            by or client or "somebody",
            bound.what,
            bound.limit,
        )
        self._recorder.refusals.add(kind=BOUND, principal=by, client=client, bound=bound.what)

    def flush(self) -> None:
        """Write all pending sums, at the shutdown of the gateway."""
        self._log.flush()
