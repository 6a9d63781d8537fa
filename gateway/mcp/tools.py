"""The MCP definitions of the tools and resources that a mount offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from pydantic import ValidationError

from gateway.contract import INPUT_SCHEMA, OUTPUT_SCHEMA
from gateway.jsontext.writing import encodable
from gateway.mcp.mount_interfaces import PackedApp
from gateway.model import ViewTool

UI_EXTENSION = "io.modelcontextprotocol/ui"
APP_MIME_TYPE = "text/html;profile=mcp-app"

CALL_VIEW_TOOL: Final = "call_view_tool"
"""The tool with which a model calls a tool of a page."""

APP_ONLY: dict[str, Any] = {"ui": {"visibility": ["app"]}}
_MODEL_ONLY: dict[str, Any] = {"ui": {"visibility": ["model"]}}
_VIEW = {"type": "string", "description": "The handle of a view, as open_<app> or list_view_tools gave it."}


def shows_apps(capabilities: types.ClientCapabilities | None) -> bool:
    """Return whether a client declared that it shows MCP Apps."""
    settings = ((capabilities.extensions if capabilities else None) or {}).get(UI_EXTENSION)
    mime_types = settings.get("mimeTypes") if settings else None
    return isinstance(mime_types, list) and APP_MIME_TYPE in mime_types


_INPUT: Mapping[str, Any] = {
    "type": "object",
    "description": "Arguments that the app receives when it opens, if it supports any; otherwise omit them.",
}


def open_tool(app: PackedApp) -> types.Tool:
    """Return `open_<app>`. Only the model may call it: its result carries a new launch value."""
    return types.Tool(
        name=f"open_{app.id}",
        title=f"Open {app.title}",
        description=f"Shows {app.title} to the person and gives the handle of the new view. What the app can do then "
        f"appears as tools named {app.id}_….",
        input_schema={"type": "object", "properties": {"input": _INPUT}, "additionalProperties": False},
        output_schema=_object({"view": _VIEW}),
        # Some hosts know only the older flat key.
        _meta={"ui": {"resourceUri": app.resource.uri, "visibility": ["model"]}, "ui/resourceUri": app.resource.uri},
    )


def page_tool(tool: ViewTool) -> types.Tool:
    """Return a tool of a live view under the page's own name, for the host page around it."""
    return live_tool(tool).model_copy(update={"name": tool.page_name})


def http_request() -> types.Tool:
    """Return the tool that carries every request of an app to its backend."""
    return types.Tool(
        name="http_request",
        title="HTTP request",
        description="Carries a request of the app to its backend, under the policy.",
        input_schema=dict(INPUT_SCHEMA),
        output_schema=dict(OUTPUT_SCHEMA),
        _meta=APP_ONLY,
    )


def http_stream() -> types.Tool:
    """Return the tool that asks for a pending answer, or for the next part of one."""
    properties = {
        "id": {"type": "string", "description": "Value of the header gateway-pending, or of the field stream."},
        "cancel": {"type": "boolean", "description": "Give the request up."},
        "_view": {"type": "string", "description": "View proof."},
    }
    return types.Tool(
        name="http_stream",
        title="HTTP request, continued",
        description="Returns the response of a request that waits for an approval, or the next part of a streamed one: "
        "call again while the field stream is present. A part may be empty.",
        input_schema={"type": "object", "properties": properties, "required": ["id"]},
        output_schema=dict(OUTPUT_SCHEMA),
        _meta=APP_ONLY,
    )


def webmcp_send() -> types.Tool:
    """Return the tool that sends messages on a WebSocket of a view."""
    properties = {
        "id": {"type": "string", "description": "Value of the field stream of the answer that opened the WebSocket."},
        "number": {"type": "integer", "minimum": 0, "description": "The number of the first message, from 0 on."},
        "messages": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Each has text, bytes in base64, or close with code and reason. Numbers that were sent "
            "already are left out.",
        },
        "_view": {"type": "string", "description": "View proof."},
    }
    return types.Tool(
        name="webmcp_send",
        title="WebSocket, messages",
        description="Sends messages of the app on a WebSocket that http_request opened with the method WEBSOCKET; "
        "returns once there is room for more. http_stream returns the backend's.",
        input_schema={"type": "object", "properties": properties, "required": ["id", "number", "messages"]},
        output_schema=_object({"sent": {"type": "boolean"}}),
        _meta=APP_ONLY,
    )


def webmcp_attach() -> types.Tool:
    """Return the tool by which a view proves that it is the one that was opened."""
    properties = {
        "launch": {"type": "string", "description": "The launch value of the result that opened the view."},
        "former": {"type": "string", "description": "The view that its page was before, as `_view` proves it."},
        "capabilities": {"type": "object", "description": "What the view and its host can do."},
    }
    output = {
        "view": _VIEW,
        "key": {"type": "string"},
        "proven": {"type": "boolean"},
        "free": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The tools of its page that its host may offer by itself.",
        },
        "largest": {"type": "integer", "description": "Bytes that one message may have."},
    }
    return types.Tool(
        name="webmcp_attach",
        title="Attach the view",
        description="Connects a view that a host shows with the gateway.",
        input_schema={"type": "object", "properties": properties},
        output_schema=_object(output),
        _meta=APP_ONLY,
    )


def list_view_tools() -> types.Tool:
    """Return the tool that lists the tools of open views, for models whose list of tools is fixed."""
    return types.Tool(
        name="list_view_tools",
        title="List the tools of open views",
        description="The views that are open now, with the tools that each of them offers. Call one with "
        "call_view_tool.",
        input_schema={"type": "object", "properties": {"view": _VIEW}, "additionalProperties": False},
        output_schema=_object({"views": {"type": "array", "items": {"type": "object"}}}),
        annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        _meta=_MODEL_ONLY,
    )


def call_view_tool() -> types.Tool:
    """Return the tool that calls a tool of one view by the page's own name."""
    properties = {
        "view": _VIEW,
        "tool": {"type": "string", "description": "A name that list_view_tools gave."},
        "arguments": {"type": "object", "description": "Arguments by that tool's input schema."},
        "call": {"type": "string", "description": "Alone: the call whose answer was not there yet, to collect it."},
    }
    return types.Tool(
        name=CALL_VIEW_TOOL,
        title="Call a tool of a view",
        description="Calls a tool that the page in an open view offers: give view, tool and arguments. If the answer "
        "says that the call still runs, collect it with call alone.",
        input_schema={"type": "object", "properties": properties, "additionalProperties": False},
        _meta=_MODEL_ONLY,
    )


def live_tool(tool: ViewTool) -> types.Tool:
    """Return a tool of a live view."""
    return types.Tool(
        name=tool.name,
        title=tool.title or None,
        description=tool.description,
        input_schema=input_schema(tool),
        output_schema=output_schema(tool),
        annotations=_annotations(tool.annotations),
        _meta=_MODEL_ONLY,
    )


def input_schema(tool: ViewTool) -> dict[str, Any]:
    """Return the page's schema without what MCP does not allow, so that one tool never spoils the list."""
    return _object_schema(tool.input_schema)


def output_schema(tool: ViewTool) -> dict[str, Any] | None:
    """Return the schema of its structured results, treated alike."""
    return None if tool.output_schema is None else _object_schema(tool.output_schema)


def _object_schema(definition: Mapping[str, Any]) -> dict[str, Any]:
    schema = {**definition, "type": "object"}
    properties = schema.get("properties")
    if properties is not None and not (
        isinstance(properties, dict) and all(isinstance(value, dict | bool) for value in properties.values())
    ):
        del schema["properties"]
    required = schema.get("required")
    if required is not None and not (isinstance(required, list) and all(isinstance(name, str) for name in required)):
        del schema["required"]
    if not isinstance(schema.get("$schema", ""), str):
        del schema["$schema"]
    return encodable(schema)


def app_resource(app: PackedApp) -> types.Resource:
    """Return the packed app's entry in a list of resources."""
    return types.Resource(
        uri=app.resource.uri,
        name=app.id,
        title=app.title,
        mime_type=APP_MIME_TYPE,
        size=len(app.resource.html.encode()),
        _meta=_meta(app),
    )


def app_contents(app: PackedApp, html: str) -> types.TextResourceContents:
    """Return the packed app. Hosts differ in where they look for `_meta.ui`, so it is in both places."""
    return types.TextResourceContents(uri=app.resource.uri, mime_type=APP_MIME_TYPE, text=html, _meta=_meta(app))


def _meta(app: PackedApp) -> dict[str, Any]:
    return {"ui": dict(app.resource.meta)}


def _annotations(values: Mapping[str, Any]) -> types.ToolAnnotations | None:
    try:
        return types.ToolAnnotations.model_validate(dict(values), by_name=False) if values else None
    except ValidationError:
        return None  # invalid annotations of a page are dropped


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}
