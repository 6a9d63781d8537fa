"""One turn: the model answers, its calls are made, and it answers again, until it has nothing more to call."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from examples.chat_host.conversation import Conversation
from examples.chat_host.gateway_client import Gateway, GatewayError, GatewayTool
from examples.chat_host.items import Approval, Failure, McpApp, Message, ToolUse, text_of, to_entries
from examples.chat_host.models.base import (
    CallDelta,
    CallStarted,
    Finished,
    Model,
    ModelError,
    TextDelta,
    Tool,
)

MOST_ANSWERS = 12
"""Answers of the model in one turn: a model that calls tools without end is stopped."""

MOST_CALLS = 16
"""Calls in one answer."""

LONGEST_ANSWER = 400_000
"""Characters of one answer, arguments included."""

PAGE_LOADS = 8.0
"""Seconds that the next answer waits for the tools of an app that was just opened."""

LAUNCH = "webmcp-gateway/launch"
"""The secret in the result of `open_<app>` with which a view proves its call; views on the bridge need none."""

replace = msgspec.structs.replace


@dataclass(slots=True)
class Turn:
    """Answers the last message of `conversation`. `display_modes` maps apps and upstreams to where they are shown."""

    conversation: Conversation
    model: Model
    gateway: Gateway
    display_modes: Mapping[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Run until the model has answered; what goes wrong becomes an item of the conversation."""
        try:
            for _ in range(MOST_ANSWERS):
                calls = await self._answer()
                for call in calls:
                    await self._make_call(call)
                if not calls:
                    return
            text = f"The model called tools in {MOST_ANSWERS} answers in a row, so it was stopped."
            self._fail("endless", text)
        except ModelError as error:
            self._fail(error.kind, error.text, error.retry_after)

    async def _answer(self) -> list[ToolUse]:
        """Stream one answer into the conversation; return its calls. Raises `ModelError`."""
        answer = new_id()
        text: Message | None = None
        calls: dict[str, ToolUse] = {}
        size = 0
        offered = [Tool(tool.name, tool.description, tool.schema) for tool in self.gateway.tools]
        entries = to_entries(self.conversation.items.values())
        try:
            async for part in self.model.answer(entries, offered):
                match part:
                    case TextDelta(more):
                        size += len(more)
                        if text is None:
                            if not more.strip():
                                continue  # some models begin with empty lines
                            text = Message(new_id(), "assistant", "", "writing")
                            self.conversation.put(text)
                        text = self._append(text, more)
                    case CallStarted(id, name):
                        if len(calls) == MOST_CALLS:
                            raise ModelError("broken", f"The model made more than {MOST_CALLS} calls at once.")
                        calls[id] = self._new_call(answer, id, name)
                    case CallDelta(id, more):
                        size += len(more)
                        calls[id] = self._append(calls[id], more)
                    case Finished("length"):
                        raise ModelError("broken", "The answer reached the model's limit of length, and ended there.")
                    case Finished("filtered"):
                        raise ModelError("refused", "The model's endpoint held back the answer.")
                    case Finished():
                        pass
                if size > LONGEST_ANSWER:
                    raise ModelError("broken", "The answer was too long, and was stopped.")
        except ModelError:
            self._close(text, "stopped")
            for call in calls.values():
                self.conversation.put(replace(call, state="stopped", text="The answer broke off before the call."))
            raise
        self._close(text, "done")
        if text is None and not calls:
            raise ModelError("broken", "The model gave an empty answer.")
        return list(calls.values())

    def _append(self, item: Any, more: str) -> Any:
        return self.conversation.append(item, more)

    def _close(self, text: Message | None, state: Any) -> None:
        if text is not None:
            self.conversation.put(replace(text, state=state))

    def _new_call(self, answer: str, id: str, name: str) -> ToolUse:
        tool = self.gateway.find(name)
        item = new_id()
        app = _app_of(tool, item, self.display_modes) if tool is not None else None
        title = tool.title if tool is not None else name[:64]
        use = ToolUse(item, answer, id, name, title, app=app)
        self.conversation.put(use)
        return use

    async def _make_call(self, use: ToolUse) -> None:
        """Make one call, and store its result."""
        tool = self.gateway.find(use.name)
        if tool is None:
            known = ", ".join(one.name for one in self.gateway.tools)[:2000]
            text = f"There is no tool {use.name[:64]!r}. The tools are: {known or 'none at the moment'}."
            self.conversation.put(replace(use, state="failed", text=text, app=None))
            return
        try:
            arguments = read_arguments(use.written)
        except ValueError as error:
            self.conversation.put(replace(use, state="failed", text=f"The arguments were not used: {error}.", app=None))
            return
        self.conversation.skip.clear()
        use = replace(use, state="running", arguments=arguments)
        self.conversation.put(use)

        async def ask(approval: Approval | None) -> None:
            state = "waiting" if approval is not None else "running"
            self.conversation.put(replace(use, state=state, approval=approval))

        try:
            result = await self.gateway.call(use.name, arguments, ask)
        except GatewayError as error:
            self.conversation.put(replace(use, state="failed", text=str(error), app=None))
            return
        await self._finish(use, tool, result)

    async def _finish(self, use: ToolUse, tool: GatewayTool, result: dict[str, Any]) -> None:
        failed = result.get("isError") is True
        (result.get("_meta") or {}).pop(LAUNCH, None)
        shown = use.app if not failed else None
        done = replace(
            use, state="failed" if failed else "done", text=text_of(result), app=shown,
            result=result if shown is not None else None,
        )  # fmt: skip
        self.conversation.put(done)
        if shown is not None and tool.app is not None and self.conversation.is_shown:
            await self._wait_for_tools(f"{tool.app}_")

    async def _wait_for_tools(self, prefix: str) -> None:
        """Wait for the tools of an app's page, unless the page of the chat says that it did not open the app."""
        skipped = asyncio.ensure_future(self.conversation.skip.wait())
        loaded = asyncio.ensure_future(self.gateway.wait_for_tools(prefix, PAGE_LOADS))
        try:
            await asyncio.wait({skipped, loaded}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            skipped.cancel()
            loaded.cancel()

    def _fail(self, reason: str, text: str, retry_after: float | None = None) -> None:
        self.conversation.put(Failure(new_id(), reason, text, retry_after))


def read_arguments(text: str) -> dict[str, Any]:
    """Return the arguments that a model wrote. Raises ValueError with the reason."""
    if not text.strip():
        return {}
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("they are not JSON") from error
    if not isinstance(read, dict):
        raise ValueError("they are not a JSON object")
    return read


def new_id() -> str:
    """Return an id for an item."""
    return secrets.token_urlsafe(9)


def _app_of(tool: GatewayTool, item: str, modes: Mapping[str, str]) -> McpApp | None:
    if tool.resource_uri is None:
        return None
    name = tool.app or tool.upstream or ""
    mode = modes.get(name, "inline")
    title = re.sub(r"^(Open|Show|Get) ", "", tool.title)
    return McpApp(
        title=title, mcp_app_id=item, resource_uri=tool.resource_uri, tool_name=tool.name, tool_call_id=item,
        display_mode=mode if mode in ("fullscreen", "pip") else "inline",  # type: ignore[arg-type]  # of a literal
        fallback_text=f"{title} cannot be shown here.", app=tool.app, upstream=tool.upstream,
    )  # fmt: skip
