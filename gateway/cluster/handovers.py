"""Bodies, and pages for frames, that a node holds for a caller whose next request may reach another node."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from gateway.cluster.forwards import NOBODY, ForwardedRequest, Forwards
from gateway.cluster.ids import ObjectKind
from gateway.cluster.messages import BODIES, DOCUMENTS, LARGEST, Broken, decode_texts, encode_texts
from gateway.errors import Refusal
from gateway.model import Principal
from gateway.ports.nodes import NodeAnswer, NodeRow
from gateway.ports.sessions import OneTimeValues

LIFE: Final = 60.0
"""Seconds that a body waits to be taken, as in `gateway.doors.bridge.uploads`."""

EACH: Final = 256
"""Waiting bodies of one principal."""

MOST: Final = 16_384
"""Waiting bodies of all principals, at all nodes."""

_BODY: Final = "body at a node"

log = logging.getLogger(__name__)


class Handovers:
    """Finds what another node holds. `hints` say where a body is whose id a host page has chosen.

    `incarnation` returns that of this node.
    """

    def __init__(self, forwards: Forwards, hints: OneTimeValues, incarnation: Callable[[], str]) -> None:
        self._forwards = forwards
        self._hints = hints
        self._incarnation = incarnation

    async def announce(self, id: str, principal: Principal) -> None:
        """Let other nodes find a body that a host page has sent to this one. Raises OSError."""
        await self._hints.put(
            _BODY, _key(id, principal), self._incarnation(), owner=principal.id, life=LIFE, each=EACH, most=MOST
        )

    async def fetch_body(self, id: str, principal: Principal) -> tuple[bytes, bool] | None:
        """Return a body that a host page has sent to another node, and whether it is JSON; None if it is missing."""
        try:
            incarnation = await self._hints.take(_BODY, _key(id, principal))
            row = await self._forwards.living(incarnation) if incarnation is not None else None
            if row is None:
                return None
            async with self._body_at(row, id, principal) as answer:
                if answer is None:
                    return None
                return await answer.read(LARGEST), answer.header("content-type").startswith("application/json")
        except (Refusal, OSError) as error:
            log.warning("a body at another node cannot be fetched: %s", error)
            return None

    @asynccontextmanager
    async def open_body(self, id: str, principal: Principal) -> AsyncIterator[NodeAnswer | None]:
        """Yield the answer with a body of another node, which its id names; None if it is missing. Raises `Refusal`."""
        row = await self._forwards.owner_of(ObjectKind.BODY, id)
        if row is None:
            yield None
            return
        async with self._body_at(row, id, principal) as answer:
            yield answer

    @asynccontextmanager
    async def _body_at(self, row: NodeRow, id: str, principal: Principal) -> AsyncIterator[NodeAnswer | None]:
        headers = {"content-type": "text/plain", "host": "node"}
        request = ForwardedRequest(principal, "", "POST", BODIES, id.encode(), headers)
        async with self._forwards.send_once(row, request) as answer:
            yield answer if answer.status == 200 else None

    async def fetch_document(self, once: str, host: str) -> tuple[str, str] | None:
        """Return the page that another node holds for the frame at `host`, with its content security policy.

        None if it is missing. Raises `Refusal`.
        """
        row = await self._forwards.owner_of(ObjectKind.DOCUMENT, once)
        if row is None:
            return None
        headers = {"content-type": "application/msgpack", "host": "node"}
        request = ForwardedRequest(NOBODY, "", "POST", DOCUMENTS, encode_texts(once, host), headers)
        async with self._forwards.send_once(row, request) as answer:
            if answer.status != 200:
                return None
            try:
                html, policy = decode_texts(await answer.read(LARGEST))
            except (Broken, OSError) as error:
                log.warning("a page at another node cannot be fetched: %s", error)
                return None
            return html, policy


def _key(id: str, principal: Principal) -> str:
    return f"{id} {principal.id}"
