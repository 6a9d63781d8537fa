"""The tools of the everything server, as required by the scenarios of the conformance suite."""

from __future__ import annotations

import json
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

Context = ServerRequestContext[Any, Any]
Result = types.CallToolResult | types.InputRequiredResult
Arguments = Mapping[str, Any]

IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
AUDIO = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


@dataclass(frozen=True)
class Call:
    """A call of a tool, with the client's input."""

    context: Context
    arguments: Arguments
    responses: Mapping[str, Any]
    state: str | None

    def answer(self, key: str) -> Any:
        """Return the client's answer to the request `key`, None if there is none."""
        return self.responses.get(key)

    def content(self, key: str) -> Mapping[str, Any]:
        """Return the content of an accepted elicitation."""
        answer = self.answer(key)
        return answer.content or {} if isinstance(answer, types.ElicitResult) else {}


Tool = Callable[[Call], Awaitable[Result]]
TOOLS: dict[str, tuple[Tool, dict[str, Any]]] = {}


def tool(name: str, schema: dict[str, Any] = EMPTY) -> Callable[[Tool], Tool]:
    """Register a tool."""

    def register(run: Tool) -> Tool:
        TOOLS[name] = (run, schema)
        return run

    return register


def texts_result(*texts: str, error: bool = False) -> types.CallToolResult:
    """Return a result of texts."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=text) for text in texts], is_error=error)


def content(*blocks: types.ContentBlock) -> types.CallToolResult:
    """Return a result of blocks."""
    return types.CallToolResult(content=list(blocks))


def embedded(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    """Return a resource within a result."""
    return types.EmbeddedResource(
        type="resource", resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    )


def needs(state: str | None = None, **requests: types.InputRequest) -> types.InputRequiredResult:
    """Ask the client for more input."""
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def form(message: str, **properties: str) -> types.ElicitRequest:
    """Return an elicitation of values with the types in `properties`."""
    schema = {
        "type": "object",
        "properties": {k: {"type": v} for k, v in properties.items()},
        "required": [*properties],
    }
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling_request(text: str) -> types.CreateMessageRequest:
    """Return a sampling request."""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))


@tool("test_simple_text")
async def simple_text(_: Call) -> Result:
    """Text."""
    return texts_result("This is a simple text response for testing.")


@tool("test_image_content")
async def shows_image(_: Call) -> Result:
    """An image."""
    return content(types.ImageContent(type="image", data=IMAGE, mime_type="image/png"))


@tool("test_audio_content")
async def audio(_: Call) -> Result:
    """A sound."""
    return content(types.AudioContent(type="audio", data=AUDIO, mime_type="audio/wav"))


@tool("test_embedded_resource")
async def resource(_: Call) -> Result:
    """A resource within the result."""
    return content(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))


@tool("test_multiple_content_types")
async def mixed(_: Call) -> Result:
    """Several kinds of content."""
    return content(
        types.TextContent(type="text", text="Multiple content types test:"),
        types.ImageContent(type="image", data=IMAGE, mime_type="image/png"),
        embedded("test://mixed-content-resource", "application/json", '{"test": "data", "value": 123}'),
    )


@tool("test_error_handling")
async def failing(_: Call) -> Result:
    """Fails."""
    return texts_result("This tool intentionally returns an error for testing", error=True)


@tool("test_tool_with_logging")
async def logging(call: Call) -> Result:
    """Sends log messages while it runs."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        params = types.LoggingMessageNotificationParams(level="info", data=text)
        words = types.LoggingMessageNotification(params=params)
        await call.context.session.send_notification(words, related_request_id=call.context.request_id)
    return texts_result("Tool with logging executed successfully")


@tool("test_tool_with_progress")
async def progress(call: Call) -> Result:
    """Tells how far it is."""
    for done in (0, 50, 100):
        await call.context.session.report_progress(done, 100, f"Completed step {done} of 100")
    return texts_result("done")


@tool("test_logging_tool")
async def logs(call: Call) -> Result:
    """Sends a log message to clients that want them; the server's own session leaves it out for others."""
    with warnings.catch_warnings(action="ignore"):  # the SDK warns that logging is deprecated
        await call.context.session.send_log_message("info", "Logged", related_request_id=call.context.request_id)
    return texts_result("Logged")


@tool("test_streaming_elicitation")
async def streams(call: Call) -> Result:
    """Tells how far it is on the stream of its answer, then asks in the answer."""
    await call.context.session.report_progress(1, 2, "Half")
    return needs(user_name=form("What is your name?", name="string"))


@tool("test_sampling", {"type": "object", "properties": {"prompt": {"type": "string"}}, "required": ["prompt"]})
async def samples(call: Call) -> Result:
    """Asks the client's model."""
    related = ServerMessageMetadata(related_request_id=call.context.request_id)
    request = sampling_request(call.arguments["prompt"])
    answer = await call.context.session.send_request(request, types.CreateMessageResult, metadata=related)
    text = answer.content.text if isinstance(answer.content, types.TextContent) else "?"
    return texts_result(f"LLM response: {text}")


async def elicited(call: Call, message: str, schema: dict[str, Any]) -> types.ElicitResult:
    """Return the answer of the client's person, in the era of the handshake."""
    return await call.context.session.elicit_form(message, schema, call.context.request_id)


@tool("test_elicitation", {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]})
async def elicits(call: Call) -> Result:
    """Asks the client's person."""
    schema = {"type": "object", "properties": {"username": {"type": "string"}, "email": {"type": "string"}}}
    answer = await elicited(call, call.arguments["message"], schema)
    return texts_result(f"User response: action={answer.action}, content={json.dumps(answer.content or {})}")


@tool("test_elicitation_sep1034_defaults")
async def defaults(call: Call) -> Result:
    """Asks with defaults of every kind."""
    status = {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"}
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": status,
        "verified": {"type": "boolean", "default": True},
    }
    answer = await elicited(call, "Please review the defaults", {"type": "object", "properties": properties})
    return texts_result(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content or {})}")


@tool("test_elicitation_sep1330_enums")
async def enums(call: Call) -> Result:
    """Asks for choices of every kind."""
    titled = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    plain = ["option1", "option2", "option3"]
    properties = {
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": plain, "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    answer = await elicited(call, "Please choose", {"type": "object", "properties": properties})
    return texts_result(f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content or {})}")


@tool("json_schema_2020_12_tool", SCHEMA_2020_12)
async def json_schema(call: Call) -> Result:
    """Has every keyword of JSON Schema 2020-12 in its schema."""
    return texts_result(json.dumps(dict(call.arguments)))


@tool("test_x_mcp_header", REGION)
async def mirrored(call: Call) -> Result:
    """Has an argument that clients repeat in a header."""
    return texts_result(f"region={call.arguments.get('region')}")


@tool("test_missing_capability")
async def picky(call: Call) -> Result:
    """Wants a client with a model."""
    capabilities = call.context.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is needed", {"requiredCapabilities": {"sampling": {}}}
        )
    return texts_result("This client has sampling.")


@tool("test_reconnection")
async def reconnection(call: Call) -> Result:
    """Ends its stream before it answers."""
    if call.context.close_sse_stream is not None:
        await call.context.close_sse_stream()
    return texts_result("Reconnection test completed")


@tool("test_input_required_result_elicitation")
async def needs_elicitation(call: Call) -> Result:
    """Needs a name."""
    if call.answer("user_name") is not None:
        return texts_result(f"Hello, {call.content('user_name').get('name')}!")
    return needs(user_name=form("What is your name?", name="string"))


@tool("test_input_required_result_sampling")
async def needs_sampling(call: Call) -> Result:
    """Needs a model's answer."""
    answer = call.answer("capital_question")
    if isinstance(answer, types.CreateMessageResult) and isinstance(answer.content, types.TextContent):
        return texts_result(answer.content.text)
    return needs(capital_question=sampling_request("What is the capital of France?"))


@tool("test_input_required_result_list_roots")
async def needs_roots(call: Call) -> Result:
    """Needs the client's roots."""
    answer = call.answer("client_roots")
    if isinstance(answer, types.ListRootsResult):
        return texts_result(f"{len(answer.roots)} roots")
    return needs(client_roots=types.ListRootsRequest())


@tool("test_input_required_result_request_state")
async def keeps_state(call: Call) -> Result:
    """Needs its own state back."""
    if call.answer("confirm") is not None and call.state == "the-state":
        return texts_result("state-ok: confirmation received")
    return needs("the-state", confirm=form("Please confirm", ok="boolean"))


@tool("test_input_required_result_multiple_inputs")
async def needs_much(call: Call) -> Result:
    """Needs three things at once."""
    if {"user_name", "greeting", "client_roots"} <= call.responses.keys():
        return texts_result("All inputs received.")
    return needs(
        "many",
        user_name=form("What is your name?", name="string"),
        greeting=sampling_request("Generate a greeting"),
        client_roots=types.ListRootsRequest(),
    )


@tool("test_input_required_result_multi_round")
async def rounds(call: Call) -> Result:
    """Asks twice, one after the other."""
    if call.state is not None and call.state.startswith("2:") and call.answer("step2") is not None:
        return texts_result(f"{call.state[2:]} likes {call.content('step2').get('color')}.")
    if call.state == "1" and call.answer("step1") is not None:
        name = call.content("step1").get("name")
        return needs(f"2:{name}", step2=form("Step 2: What is your favorite color?", color="string"))
    return needs("1", step1=form("Step 1: What is your name?", name="string"))


@tool("test_input_required_result_tampered_state")
async def sealed_state(call: Call) -> Result:
    """Takes its state back only as it gave it; the SDK's boundary sees to that."""
    if call.state is None:
        return needs("round-1", confirm=form("Please confirm", ok="boolean"))
    return texts_result(f"state-ok: {call.state}")


@tool("test_input_required_result_capabilities")
async def asks_what_it_may(call: Call) -> Result:
    """Asks only for what the client can do."""
    capabilities = call.context.session.client_capabilities
    requests: dict[str, types.InputRequest] = {}
    if capabilities is not None and capabilities.sampling is not None:
        requests["sample"] = sampling_request("Say hello")
    if capabilities is not None and capabilities.elicitation is not None:
        requests["ask"] = form("What is your name?", name="string")
    return types.InputRequiredResult(input_requests=requests, request_state="gated")
