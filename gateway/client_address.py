"""The client address of the current request, for the record: each door sets it, tasks inherit it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

CLIENT: Final[ContextVar[str | None]] = ContextVar("client", default=None)
"""None outside a request, or if a trusted proxy does not name its client."""
