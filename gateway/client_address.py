"""Facts about the current request, for the record and the access log: each door sets them, tasks inherit them."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

CLIENT: Final[ContextVar[str | None]] = ContextVar("client", default=None)
"""The client address; None outside a request, or if a trusted proxy does not name its client."""


@dataclass(slots=True)
class RequestFacts:
    """The facts of a request for the access log; the exchange adds its app and trace. `since` is monotonic."""

    client: str | None
    since: float
    app: str | None = None
    trace: str | None = None


SEEN: Final[ContextVar[RequestFacts | None]] = ContextVar("seen", default=None)
"""None if the request is not logged."""
