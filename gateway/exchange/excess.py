"""Bounds that callers exceed: each time is counted, and summed up in the log and in the record."""

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
    """Hears of each bound that is exceeded; counts in `metrics`."""

    def __init__(self, metrics: Metrics, recorder: Recorder) -> None:
        self._metrics = metrics
        self._recorder = recorder
        self._log = ThrottledLog(log)

    def note(self, bound: Bound, by: str | None, client: str | None) -> None:
        """The principal `by` went beyond a bound, or whoever it is at the address `client`."""
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
        """Write the sums that are due later: the gateway ends."""
        self._log.flush()
