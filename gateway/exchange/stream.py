"""An answer that is sent in parts while it arrives; its record is closed when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Self

from gateway.errors import STATUS, Reason, Refusal
from gateway.exchange.record import Record
from gateway.model import Response

log = logging.getLogger(__name__)


def failed() -> Refusal:
    """Return the refusal for an unexpected error."""
    return Refusal(Reason.INTERNAL, "The gateway failed at this request; its log says why.")


class Stream:
    """A streamed answer. `head` has no body; iterate for its parts, and close it, which discards what has not arrived.

    Iterating raises `Refusal` if the rest does not arrive.
    """

    def __init__(self, head: Response, parts: AsyncIterator[bytes], record: Record, held: AsyncExitStack) -> None:
        self.head = head
        self.id = record.id
        self._parts = parts
        self._record = record
        self._held = held
        self._size = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        try:
            part = await anext(self._parts)
        except StopAsyncIteration:
            await self._end(self.head.status)
            raise
        except Refusal as refusal:
            await self._end(refusal.status, refusal.reason, refusal.detail)
            raise
        except asyncio.CancelledError:
            await self.aclose()
            raise
        except (Exception, SystemExit) as error:  # a plugin's backend may raise anything: it ends this stream alone
            log.exception("the stream of %s failed", self.id)
            fault = failed()
            await self._end(fault.status, fault.reason, fault.detail)
            raise fault from error
        self._size += len(part)
        return part

    async def aclose(self) -> None:
        """End the stream now, if it has not ended: the backend's request is cancelled, and the record says so."""
        await self._end(STATUS[Reason.CANCELLED], Reason.CANCELLED)

    async def _end(self, status: int, reason: Reason | None = None, detail: str | None = None) -> None:
        async with self._held:
            self._record.mark("stream")
            self._record.note(response_size=self._size)
            await self._record.close(status=status, reason=reason, detail=detail)
