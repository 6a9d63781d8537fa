"""Asks persons through the configured approvers, in order, one of which is a webhook; the first answer wins.

The signature of a webhook's messages is `v1=` and HMAC-SHA256 in hex over the timestamp, a dot and the body.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from gateway.crypto import equals_secret
from gateway.errors import Refusal
from gateway.exchange.approval_answers import ApprovalAnswers
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Backend, Door, Json, Outbound, Question, Secret, with_path
from gateway.ports.approvals import Approvals, ApprovalState

log = logging.getLogger(__name__)


class NamedApprover(Protocol):
    """One approver with its name, which is also notified how a question ended."""

    @property
    def name(self) -> str: ...

    async def ask(self, question: Question) -> bool | None:
        """Return True for yes, False for no, None without an answer. Cancelled when the question is over."""
        ...

    async def over(self, question: Question, state: ApprovalState) -> None:
        """The question needs no answer any more."""
        ...


class Approvers:
    """Sends each new question to every approver that `ways` returns then."""

    def __init__(
        self, approvals: Approvals, answers: ApprovalAnswers, ways: Callable[[], Sequence[NamedApprover]]
    ) -> None:
        self._approvals = approvals
        self._answers = answers
        self._ways = ways

    async def run(self) -> None:
        """Ask until cancelled."""
        changed = asyncio.Event()
        stop = self._approvals.watch(changed.set)
        tasks_of: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    for question in [one.question for one in self._approvals.own()]:
                        if question.id not in tasks_of:
                            tasks_of[question.id] = tasks.create_task(self._put(question))
                    tasks_of = {id: task for id, task in tasks_of.items() if not task.done()}
                    await changed.wait()
                    changed.clear()
        finally:
            stop()

    async def _put(self, question: Question) -> None:
        """Ask about one question until it is over, then notify every approver."""
        over, ways = asyncio.Event(), self._ways()

        def look() -> None:
            if self._approvals.state(question.id) is not ApprovalState.OPEN:
                over.set()

        stop = self._approvals.watch(look)
        try:
            async with asyncio.TaskGroup() as tasks:
                asking = [tasks.create_task(self._ask(way, question)) for way in ways]
                look()
                await over.wait()
                for task in asking:
                    task.cancel()
            state = self._approvals.state(question.id) or ApprovalState.VOID
            async with asyncio.TaskGroup() as tasks:
                for way in ways:
                    tasks.create_task(self._over(way, question, state))
        finally:
            stop()

    async def _ask(self, way: NamedApprover, question: Question) -> None:
        """Ask one approver. Its failure counts as no answer, and affects no other approver or question."""
        try:
            answer = await way.ask(question)
            if answer is not None:
                await self._answers.answer_trusted(question.id, answer, Door.PLUGIN, way.name)
        except Refusal as refusal:
            log.warning("the answer of %s was not taken: %s", way.name, refusal.detail)
        except Exception:
            log.exception("a question could not be sent by %s; the other approvers are still asked", way.name)

    async def _over(self, way: NamedApprover, question: Question, state: ApprovalState) -> None:
        try:
            await way.over(question, state)
        except Exception:
            log.exception("%s could not be notified that a question is over", way.name)


TIMESTAMP = "webmcp-gateway-timestamp"
SIGNATURE = "webmcp-gateway-signature"

SKEW = 300.0
"""Seconds of allowed clock skew of a sender; older answers are refused."""

_SIGNATURE = re.compile(r"v1=[0-9a-f]{64}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,16}", re.ASCII)

PAUSES = (1.0, 4.0, 15.0)
"""Seconds between two attempts to deliver."""


@dataclass(frozen=True, slots=True)
class SignedAnswer:
    """A bot's answer to a question, bound to it by its digest. `by` is the person whom the bot names."""

    id: str
    digest: str
    approve: bool
    by: str


class WebhookApprover:
    """Sends each question to `url`, and a message when it is over. `approval_url` followed by an id is its page."""

    name = "webhook"

    def __init__(
        self,
        backend: Backend,
        url: str,
        secret: Secret,
        approval_url: str,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._backend = backend
        self._url = with_path(url)
        self._secret = secret
        self._approval_url = approval_url
        self._now = now
        self._sleep = sleep

    async def ask(self, question: Question) -> bool | None:
        """Deliver the question; the answer arrives separately, on the page or signed."""
        values: dict[str, Json] = {**asdict(question), "headers": [list(pair) for pair in question.headers]}
        await self._deliver("approval.asked", {"question": values, "answer_url": self._approval_url + question.id})
        return None

    async def over(self, question: Question, state: ApprovalState) -> None:
        """Send how the question ended."""
        await self._deliver("approval.over", {"id": question.id, "state": state.value})

    async def _deliver(self, kind: str, values: dict[str, Json]) -> None:
        body = plain_json({"type": kind, **values}).encode()
        for pause in (*PAUSES, None):
            why = await self._attempt(body)
            if why is None:
                return
            log.warning("the webhook did not take %s: %s%s", kind, why, "" if pause else "; given up")
            if pause is not None:
                await self._sleep(pause)

    async def _attempt(self, body: bytes) -> str | None:
        """Make one attempt; return why it should be repeated, None if it succeeded or never will."""
        timestamp = str(int(self._now()))
        headers = (
            ("content-type", "application/json"),
            (TIMESTAMP, timestamp),
            (SIGNATURE, signature(self._secret, timestamp, body)),
        )
        try:
            answer = await self._backend.send(Outbound("POST", self._url, headers, body, response_limit=64 * 1024))
        except Refusal as refusal:
            return refusal.detail
        if answer.status < 300:
            return None
        if answer.status < 500 and answer.status not in (408, 429):
            log.warning("the webhook refuses: status %d", answer.status)
            return None
        return f"status {answer.status}"


def signature(secret: Secret, timestamp: str, body: bytes) -> str:
    """Return the signature of a message."""
    mac = hmac.new(secret.reveal().encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"v1={mac.hexdigest()}"


def check_signed_fields(timestamp: str, signature: str, now: float) -> None:
    """Check a signed message's header fields before its body is read. Raises ValueError with what is wrong."""
    if not _SIGNATURE.fullmatch(signature):
        raise ValueError(f"`{SIGNATURE}` is not that of this body and `{TIMESTAMP}`.")
    if not _SECONDS.fullmatch(timestamp) or abs(now - int(timestamp)) > SKEW:
        raise ValueError(f"`{TIMESTAMP}` must be now, in seconds since the epoch.")


def signed_answer(secret: Secret, timestamp: str, signature_text: str, body: bytes, now: float) -> SignedAnswer:
    """Return the answer in a signed message. Raises ValueError with what is wrong."""
    check_signed_fields(timestamp, signature_text, now)
    if not equals_secret(signature_text, signature(secret, timestamp, body)):
        raise ValueError(f"`{SIGNATURE}` is not that of this body and `{TIMESTAMP}`.")
    try:
        values = parse_json(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or values.get("answer") not in ("approve", "decline"):
        raise ValueError("The body must be {id, digest, answer: approve or decline, by}.")
    texts = [values.get("id"), values.get("digest"), values.get("by", "")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("`id`, `digest` and `by` must be texts.")
    id, digest, by = map(str, texts)
    return SignedAnswer(id, digest, values["answer"] == "approve", by)
