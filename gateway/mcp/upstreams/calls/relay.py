"""Carries one client request to an upstream of either era, with the requests that it leads to."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from msgspec.structs import replace

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.jsontext.writing import sorted_json
from gateway.mcp.upstreams.calls.client import (
    ASKING,
    INPUT_REQUIRED,
    UpstreamClient,
    cacheable,
    legacy_params,
    legacy_request,
    legacy_result,
    modern_params,
    modern_result,
    needs_input,
)
from gateway.mcp.upstreams.catalog import shapes
from gateway.mcp.upstreams.transport.conversation import Asker, Message, UpstreamLost, timeout_notes
from gateway.mcp.upstreams.transport.handshake import Mirrors, envelope, headers, speaks_another
from gateway.mcp.upstreams.transport.link import LinkSession, connection_refusal
from gateway.mcp.upstreams.upstream import Upstream

ROUNDS = 16
"""Times that an upstream may ask for more input before it answers."""

LONGEST_PARK = 300.0
"""Seconds that a call waits for a modern client to return with the requested input."""

MAX_PARKED = 16
"""Parked calls per principal."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "calls suspended for an upstream's question to the client",
        f"{MAX_PARKED} per principal and upstream, {LONGEST_PARK:g} s; {ROUNDS} questions per call",
        "an error, and the call ends at the upstream",
    ),
)

(_PARKED_CALLS,) = BOUNDS


@dataclass(eq=False, slots=True)
class _WaitingCall:
    """A call to a handshake upstream that waits for input from a client, which must repeat its call."""

    id: str
    owner: str
    task: asyncio.Task[Message]
    asker: _ParkingAsker
    call_digest: str = ""
    expiry: asyncio.TimerHandle | None = None


@dataclass(eq=False, slots=True)
class _ParkingAsker:
    """Holds an upstream's requests until the client returns with the answers."""

    who: str
    asked_of: UpstreamClient
    client: UpstreamClient | None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    open: dict[str, tuple[str, Message, asyncio.Future[Message]]] = field(default_factory=dict)
    count: int = 0

    @property
    def owner(self) -> str:
        return self.asked_of.owner

    def takes(self, method: str) -> bool:
        return self.asked_of.takes(method)

    async def ask(self, method: str, params: Message) -> Message:
        self.asked_of.check_askable(method)
        self.count += 1
        if self.count > ROUNDS:
            raise MCPError(types.INVALID_REQUEST, f"A call may ask {ROUNDS} times.")
        key, answer = f"input-{self.count}", asyncio.get_running_loop().create_future()
        self.open[key] = (method, params, answer)
        self.news.set()
        try:
            client_answer: Message = await answer
            return client_answer
        finally:
            self.open.pop(key, None)

    async def tell(self, method: str, params: Message) -> None:
        if self.client is not None:
            await self.client.tell(method, params)

    def requests(self) -> Message:
        """Return the upstream's open requests in the form for a modern client."""
        return {
            key: {"method": method, "params": params} if params or method != "roots/list" else {"method": method}
            for key, (method, params, _) in self.open.items()
        }

    def answer(self, responses: object) -> None:
        """Resolve the open requests with the client's responses."""
        for key, response in responses.items() if isinstance(responses, dict) else ():
            waiting = self.open.get(key)
            if waiting is not None and isinstance(response, dict) and not waiting[2].done():
                waiting[2].set_result(response)
                self.open.pop(key, None)


class UpstreamRelay:
    """Carries requests to one upstream."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._mirrors = Mirrors()
        self._waiting: dict[str, _WaitingCall] = {}

    async def forward(self, client: UpstreamClient, method: str, params: Mapping[str, Any]) -> Message:
        """Return the upstream's result, in the client's era. Raises the upstream's `MCPError`, and `Refusal`."""
        try:
            with self._upstream.turn(client.owner):
                result = await self._forward(client, method, params)
        except UpstreamLost as lost:
            if lost.refusal is not None:
                raise connection_refusal(self._upstream.spec.name, lost.refusal) from lost
            raise Refusal(
                Reason.BACKEND_UNAVAILABLE, f"The upstream {self._upstream.spec.name} gave no answer: {lost}."
            ) from lost
        except TimeoutError as error:
            spec = self._upstream.spec
            detail = f"The upstream {spec.name} did not answer within {spec.timeout:g} seconds{timeout_notes(error)}."
            raise Refusal(Reason.BACKEND_TIMEOUT, detail) from error
        extended = bool(client.capabilities.get("extensions"))
        try:
            return await shapes.read_result(method, result, client.version, extended=extended)
        except ValueError as error:
            detail = f"The upstream {self._upstream.spec.name} answered {method} with an invalid result: {error}."
            raise Refusal(Reason.BACKEND_PROTOCOL, detail) from error

    async def _forward(self, client: UpstreamClient, method: str, params: Mapping[str, Any]) -> Message:
        state = params.get("requestState")
        if client.modern and isinstance(state, str) and state in self._waiting:
            return await self._take_up(self._waiting[state], client, method, params)
        _, session = await self._upstream.session(client)
        try:
            return await self._once(session, client, method, params)
        except UpstreamLost as lost:
            if not lost.unsent:
                raise
        except MCPError as error:
            if not speaks_another(error, session.terms.version):
                raise
            session.conversation.supersede("the upstream speaks another version of the protocol now")
        _, session = await self._upstream.session(client)
        return await self._once(session, client, method, params)

    async def _once(
        self, session: LinkSession, client: UpstreamClient, method: str, params: Mapping[str, Any]
    ) -> Message:
        params = _strip_request(client, params)
        if session.terms.modern:
            if client.modern:
                return cacheable(method, await self._modern(session, client, client, method, params))
            return legacy_result(await self._asking(session, client, method, params))
        if not client.modern:
            return await self._legacy(session, client, method, params)
        if method in ASKING:
            if "requestState" in params:  # the call that it repeats has ended: it must not run once more
                raise MCPError(types.INVALID_PARAMS, "Invalid or expired requestState")
            return await self._parking(session, client, method, params)
        mute = replace(client, capabilities={})
        return modern_result(method, await self._legacy(session, mute, method, params))

    async def _modern(
        self, session: LinkSession, client: UpstreamClient, asker: Asker, method: str, params: Mapping[str, Any]
    ) -> Message:
        members = envelope(session.terms.version, client.capabilities, client.info)
        if client.info is None:
            del members[types.CLIENT_INFO_META_KEY]
        if client.level is not None:
            members[types.LOG_LEVEL_META_KEY] = client.level
        out = modern_params(params, members)
        name = params.get("name")
        tool = self._upstream.offer(client.principal).tools.get(str(name)) if method == "tools/call" else None
        mirrored = self._mirrors.of(str(name), tool) if tool is not None else None
        fields = headers(session.terms, method, out, mirrored)
        return await session.conversation.request(method, out, asker=asker, headers=fields)

    async def _legacy(self, session: LinkSession, asker: Asker, method: str, params: Mapping[str, Any]) -> Message:
        fields = headers(session.terms, method, params)
        return await session.conversation.request(method, legacy_params(params), asker=asker, headers=fields)

    async def _asking(
        self, session: LinkSession, client: UpstreamClient, method: str, params: Mapping[str, Any]
    ) -> Message:
        """Carry a call of a handshake client to a modern upstream, and request the input that it requires."""
        for rounds in range(ROUNDS):
            try:
                result = await self._modern(session, client, client, method, params)
            except UpstreamLost as lost:
                lost.unsent = lost.unsent and not rounds  # the person would have to answer everything again
                raise
            if not needs_input(result):
                return result
            responses: Message = {}
            requests = result.get("inputRequests")
            for key, request in requests.items() if isinstance(requests, dict) else ():
                responses[key] = await client.ask(*_read_input_request(request))
            params = {**params, "inputResponses": responses}
            if isinstance(state := result.get("requestState"), str):
                params["requestState"] = state
            else:
                params.pop("requestState", None)
        raise MCPError(types.INTERNAL_ERROR, f"The upstream asked for more than {ROUNDS} times.")

    async def _parking(
        self, session: LinkSession, client: UpstreamClient, method: str, params: Mapping[str, Any]
    ) -> Message:
        """Carry a call of a modern client to a handshake upstream; a repeated call brings the requested input."""
        asker = _ParkingAsker(client.who, client, client)
        call = asyncio.create_task(self._legacy(session, asker, method, params))  # `_until` ends it, or parks it
        waiting = _WaitingCall(secrets.token_urlsafe(32), client.principal.id, call, asker)
        return await self._until(waiting, client, method, params)

    async def _take_up(
        self, waiting: _WaitingCall, client: UpstreamClient, method: str, params: Mapping[str, Any]
    ) -> Message:
        if (waiting.owner, waiting.call_digest) != (client.principal.id, _call_digest(method, params)):
            raise MCPError(types.INVALID_PARAMS, "Invalid or expired requestState")
        del self._waiting[waiting.id]
        if waiting.expiry is not None:
            waiting.expiry.cancel()
        waiting.id = secrets.token_urlsafe(32)  # each is used once
        waiting.asker.client = client
        waiting.asker.answer(params.get("inputResponses"))
        return await self._until(waiting, client, method, params)

    async def _until(
        self, waiting: _WaitingCall, client: UpstreamClient, method: str, params: Mapping[str, Any]
    ) -> Message:
        """Wait until the upstream answers or asks for input."""
        asker = waiting.asker
        try:
            while not waiting.task.done() and not asker.open:
                asker.news.clear()
                news = asyncio.ensure_future(asker.news.wait())
                try:
                    await asyncio.wait({waiting.task, news}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    news.cancel()
            if waiting.task.done():
                return modern_result(method, waiting.task.result())
            mine = [other for other in self._waiting.values() if other.owner == waiting.owner]
            if len(mine) >= MAX_PARKED:
                _PARKED_CALLS.report(waiting.owner)
                raise MCPError(types.INTERNAL_ERROR, "Too many calls wait for an answer of this client already.")
            waiting.call_digest = _call_digest(
                method, params
            )  # only now: hashing may be slow, and most calls never park
            self._park(waiting)
        except BaseException as given_up:  # on cancellation too
            for note in await _end(waiting.task):
                given_up.add_note(note)
            raise
        finally:
            asker.client = None
        return {"resultType": INPUT_REQUIRED, "inputRequests": asker.requests(), "requestState": waiting.id}

    def _park(self, waiting: _WaitingCall) -> None:
        def expire() -> None:
            self._waiting.pop(waiting.id, None)
            waiting.task.cancel()

        self._waiting[waiting.id] = waiting
        waiting.expiry = asyncio.get_running_loop().call_later(LONGEST_PARK, expire)
        waiting.task.add_done_callback(_retrieve)

    async def close(self) -> None:
        """End the parked calls."""
        waiting, self._waiting = list(self._waiting.values()), {}
        for one in waiting:
            if one.expiry is not None:
                one.expiry.cancel()
            await _end(one.task)


def _strip_request(client: UpstreamClient, params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a request without members meaningless for its client: input rounds before 2026-07-28, and tasks."""
    void = {"task"} if client.modern else {"task", "inputResponses", "requestState"}
    return {name: value for name, value in params.items() if name not in void} if void & params.keys() else params


async def _end(task: asyncio.Task[Message]) -> Sequence[str]:
    """Cancel a call; return the notes on why it had no answer yet."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.wait({task})
    try:
        if task.done():
            task.exception()  # marks the exception as retrieved
    except asyncio.CancelledError as error:
        return getattr(error, "__notes__", ())
    return ()


def _retrieve(task: asyncio.Task[Message]) -> None:
    if task.done() and not task.cancelled():
        task.exception()


def _read_input_request(request: object) -> tuple[str, Message]:
    """Return a modern upstream's request for input. Raises `MCPError` if it is invalid."""
    method = request.get("method") if isinstance(request, dict) else None
    params = request.get("params", {}) if isinstance(request, dict) else None
    if method not in ("elicitation/create", "sampling/createMessage", "roots/list") or not isinstance(params, dict):
        raise MCPError(types.INTERNAL_ERROR, "The upstream requests something that the client does not support.")
    return method, legacy_request(params)


def _call_digest(method: str, params: Mapping[str, Any]) -> str:
    """Return the digest of a call without the members that change when it is repeated."""
    plain = {key: value for key, value in params.items() if key not in ("_meta", "inputResponses", "requestState")}
    return hashlib.sha256(sorted_json([method, plain]).encode()).hexdigest()
