"""The address of the client whose request is carried out, for the record: each door sets it, tasks inherit it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

CLIENT: Final[ContextVar[str | None]] = ContextVar("client", default=None)
"""None where no request is carried out, or where a trusted proxy does not say who its client is."""
