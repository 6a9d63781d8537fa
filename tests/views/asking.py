"""A view that polls for its calls by hand, and the collaborators around it."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool

from gateway.model import LOCAL, Initiator, Principal
from gateway.policy import parse_policy
from gateway.views.registry import Views
from gateway.views.relay import PollAnswer, RelayEvent
from tests.views.pages import until
from tests.views.rooms import Rooms, rooms

POLICY = parse_policy(
    """
version: 1
backends: {shop: {url: "http://shop.test"}}
routes: [{path: /api, methods: [GET]}]
tools:
  add: {}
  clear: {confirm: {when: always, message: "Clear?"}}
""",
    "policy.yaml",
)
OTHER = Principal("issuer", "client", "another")
DONE = {"content": [{"type": "text", "text": "done"}]}


@dataclass
class Asking:
    """A view that polls for its calls by hand."""

    views: Views
    id: str
    key: bytes
    after: int = 0
    count: int = 0

    def proof(self) -> str:
        """Return the next proof."""
        self.count += 1
        signed = hmac.digest(self.key, str(self.count).encode(), hashlib.sha256)
        return f"{self.id}.{self.count}.{base64.urlsafe_b64encode(signed).rstrip(b'=').decode()}"

    async def poll(self, wait: float = 5.0, *, hidden: bool = False) -> PollAnswer:
        """Poll, and note the last event that arrived."""
        handed = await self.views.relay_of(LOCAL, None, self.proof()).poll(self.after, wait, hidden=hidden)
        self.after = max([self.after, *(event.number for event in handed.events)])
        return handed

    async def next(self) -> RelayEvent:
        """Poll until an event arrives; return it."""
        (event,) = (await self.poll()).events
        return event

    def offer(self, *names: str, **definition: Any) -> None:
        """Report the page's tools."""
        tools = [Tool.model_validate({"name": name, "inputSchema": {"type": "object"}, **definition}) for name in names]
        self.views.relay_of(LOCAL, None, self.proof()).list(tools)

    def answer(self, call: str, result: dict[str, Any] | None = None) -> None:
        """Answer a call."""
        self.views.relay_of(LOCAL, None, self.proof()).answer(call, result or DONE)


@dataclass(slots=True, kw_only=True)
class House(Rooms):
    """A forwarder with its collaborators, and one view."""

    view: Asking
    tasks: list[asyncio.Task[CallToolResult]] = field(default_factory=list)

    def call(self, name: str = "cart_add", **options: Any) -> asyncio.Task[CallToolResult]:
        """Start a call of the model."""
        task = asyncio.create_task(self.forwarder.call(LOCAL, name, {"n": 1}, **{"app": None, **options}))
        self.tasks.append(task)
        return task

    def initiator(self) -> Initiator:
        """Return the initiator of the view's next request."""
        return self.views.caller(LOCAL, None, self.view.proof()).initiator


async def attach_view(views: Views) -> Asking:
    """Return a new proven view of the cart."""
    launch = (await views.open(LOCAL, "cart")).launch.reveal()
    answer = await views.attach(LOCAL, None, launch, {})
    return Asking(views, answer.view, base64.urlsafe_b64decode(answer.key + "="))


@asynccontextmanager
async def housed(folder: Path) -> AsyncIterator[House]:
    """Yield one view of the cart that has reported its two tools."""
    async with rooms(folder, POLICY) as made:
        view = await attach_view(made.views)
        view.offer("add", "clear", "unknown")
        await until(lambda: len(made.views.tools(LOCAL, None)) == 2)
        house = House(made.forwarder, made.views, made.approvals, made.journal, view=view)
        yield house
        for task in house.tasks:
            task.cancel()
        await asyncio.gather(*house.tasks, return_exceptions=True)


def result_text(result: CallToolResult) -> str:
    """Return the text of a result."""
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def status(result: CallToolResult) -> Any:
    """Return `status` of the structured content."""
    return (result.structured_content or {}).get("status")
