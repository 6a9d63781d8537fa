"""An invalid message of an upstream, and the request that it seems to answer, which then fails."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

_END: Final = 200
"""Characters at either end in which the id is searched."""

_S = r"\s*"
_VERSION = rf'"jsonrpc"{_S}:{_S}"2\.0"'
_ID = rf'"id"{_S}:{_S}([0-9]{{1,15}})'
_OUTCOME = rf'"(?:result|error)"{_S}:'
_FIRST: Final = re.compile(rf"{_S}\{{{_S}(?:{_VERSION}{_S},{_S})?{_ID}{_S},{_S}(?:{_VERSION}{_S},{_S})?{_OUTCOME}")
_LAST: Final = re.compile(rf",{_S}(?:{_VERSION}{_S},{_S})?{_ID}{_S}(?:,{_S}{_VERSION}{_S})?\}}{_S}$")
_BEGUN: Final = re.compile(rf"{_S}\{{{_S}(?:{_VERSION}{_S},{_S})?{_OUTCOME}")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """`id` is that of the request that it seems to answer, `why` the fault."""

    id: int | None
    why: str

    @classmethod
    def of(cls, text: str | bytes | bytearray, error: ValueError) -> Self:
        """Return `text` as an unreadable message with `error` as its fault."""
        first, last = (
            end if isinstance(end, str) else end.decode("utf-8", "replace") for end in (text[:_END], text[-_END:])
        )
        found = _FIRST.match(first) or (_LAST.search(last) if _BEGUN.match(first) else None)
        return cls(int(found[1]) if found is not None else None, str(error))
