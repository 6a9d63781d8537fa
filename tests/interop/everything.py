"""A server with everything in MCP, as required by the scenarios of the conformance suite, in both eras."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import mcp_types as types
from mcp.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from tests.interop.everything_tools import (
    EMPTY,
    IMAGE,
    TOOLS,
    Call,
    Context,
    Result,
    embedded,
    form,
    needs,
    texts_result,
)


async def tell(
    context: Context, bus: InMemorySubscriptionBus, event: Any, legacy: Callable[[], Awaitable[None]]
) -> None:
    """Notify listeners of both eras of a change."""
    await bus.publish(event)
    if not context.protocol_version.startswith("2026"):
        await legacy()


STATIC: dict[str, types.TextResourceContents | types.BlobResourceContents] = {
    "test://static-text": types.TextResourceContents(
        uri="test://static-text", mime_type="text/plain", text="This is the content of the static text resource."
    ),
    "test://static-binary": types.BlobResourceContents(
        uri="test://static-binary", mime_type="image/png", blob=base64.b64encode(base64.b64decode(IMAGE)).decode()
    ),
    "test://watched-resource": types.TextResourceContents(
        uri="test://watched-resource", mime_type="text/plain", text="Watched resource content"
    ),
}
PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


class Everything:
    """The server; `subscribed` and `levels` are what clients of the handshake requested."""

    def __init__(self) -> None:
        self.bus = InMemorySubscriptionBus()
        self.subscribed: set[str] = set()
        self.levels: list[str] = []
        self.cancelled: list[str] = []
        self.server = Server[Any](
            "everything",
            version="1.0.0",
            instructions="Everything that MCP has.",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscriptions_listen=ListenHandler(self.bus),
            get_tool_input_schema=lambda name: TOOLS[name][1] if name in TOOLS else None,
        )
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)
        self.server.middleware.append(
            RequestStateBoundary(RequestStateSecurity.ephemeral(audience="everything"), default_audience="everything")
        )

    async def _list_tools(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tools = [
            types.Tool(name=name, description=(run.__doc__ or "").strip(), input_schema=schema)
            for name, (run, schema) in TOOLS.items()
        ]
        changing = ("test_trigger_tool_change", "test_trigger_prompt_change", "test_trigger_resource_change")
        tools += [types.Tool(name=name, description="Tells of a change.", input_schema=EMPTY) for name in changing]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Result:
        session = context.session
        match params.name:
            case "test_trigger_tool_change":
                await tell(context, self.bus, ToolsListChanged(), session.send_tool_list_changed)
                return texts_result("tool list changed")
            case "test_trigger_prompt_change":
                await tell(context, self.bus, PromptsListChanged(), session.send_prompt_list_changed)
                return texts_result("prompt list changed")
            case "test_trigger_resource_change":
                uri = "test://watched-resource"
                await tell(context, self.bus, ResourceUpdated(uri), lambda: session.send_resource_updated(uri))
                return texts_result("resource changed")
            case _:
                pass
        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        responses = cast(Mapping[str, Any], params.input_responses or {})
        return await TOOLS[params.name][0](Call(context, params.arguments or {}, responses, params.request_state))

    async def _list_resources(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        found = [
            types.Resource(uri=uri, name=uri.partition("//")[2], mime_type=one.mime_type) for uri, one in STATIC.items()
        ]
        return types.ListResourcesResult(resources=found)

    async def _list_templates(
        self, _: Context, __: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template="test://template/{id}/data", name="template", mime_type="application/json"
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        if uri in STATIC:
            return types.ReadResourceResult(contents=[STATIC[uri]])
        if uri.startswith("test://template/") and uri.endswith("/data"):
            id = uri.removeprefix("test://template/").removesuffix("/data")
            text = json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})
            one = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
            return types.ReadResourceResult(contents=[one])
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})

    async def _subscribe(self, _: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        self.subscribed.add(str(params.uri))
        return types.EmptyResult()

    async def _unsubscribe(self, _: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.subscribed.discard(str(params.uri))
        return types.EmptyResult()

    async def _set_level(self, _: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        self.levels.append(params.level)
        return types.EmptyResult()

    async def _list_prompts(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
        prompts = [
            types.Prompt(
                name=name,
                description="A prompt.",
                arguments=[types.PromptArgument(name=argument, required=True) for argument in arguments] or None,
            )
            for name, arguments in PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def _get_prompt(
        self, _: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult | types.InputRequiredResult:
        given = params.arguments or {}
        match params.name:
            case "test_simple_prompt":
                return prompt("This is a simple prompt for testing.")
            case "test_prompt_with_arguments":
                return prompt(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
            case "test_prompt_with_embedded_resource":
                uri = str(given.get("resourceUri"))
                text = "Embedded resource content for testing."
                return prompt(embedded(uri, "text/plain", text), "Please process the embedded resource above.")
            case "test_prompt_with_image":
                image = types.ImageContent(type="image", data=IMAGE, mime_type="image/png")
                return prompt(image, "Please analyze the image above.")
            case "test_input_required_result_prompt":
                answer = (params.input_responses or {}).get("user_context")
                if isinstance(answer, types.ElicitResult):
                    return prompt(f"Use the following context: {(answer.content or {}).get('context')}")
                return needs(user_context=form("What context should the prompt use?", context="string"))
            case _:
                raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")

    async def _complete(self, _: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))


def prompt(*parts: types.ContentBlock | str) -> types.GetPromptResult:
    """Return a prompt with messages of the user."""
    blocks = [types.TextContent(type="text", text=part) if isinstance(part, str) else part for part in parts]
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=block) for block in blocks])


def server() -> Server[Any]:
    """Return a new server, for `server:` of an upstream and for tests."""
    return Everything().server


if __name__ == "__main__":
    import anyio

    from tests.interop.standard_streams import on_standard_streams

    anyio.run(on_standard_streams, server())
