"""The lists of an upstream as its clients see them: by configuration, policy, visibility, and without an account."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.config import UpstreamSettings
from gateway.errors import Reason, Refusal
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.model import Principal
from gateway.policy import ToolRule, may_call_tool, tool_pin

BOTH = frozenset(("model", "app"))
MODEL = frozenset(("model",))

KEYS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""The lists, by their methods, and the keys of their entries in a result."""

LISTS = frozenset(KEYS.values())
"""The members of results that may have very many entries."""

RESOURCE_URI = "ui/resourceUri"
"""The older key of `_meta.ui.resourceUri` in MCP Apps; hosts differ in which they read."""

VISIBILITY = "ui/visibility"
"""The flat key of `_meta.ui.visibility`, which some servers write and no host reads."""

APP_SCHEMES = ("ui://", "mcp-app://")


def tools_of(listing: object) -> Iterator[Message]:
    """Yield the tools in a result of `tools/list`; an invalid one is left out, so that it never spoils the list.
    So is a repeated name: two forms of one name would count as a change each time.
    """
    tools = listing.get("tools") if isinstance(listing, dict) else None
    names = set[str]()
    for tool in tools if isinstance(tools, list) else ():
        if _is_tool(tool) and tool["name"] not in names:
            names.add(tool["name"])
            yield tool


def rule_of(spec: UpstreamSettings, name: str) -> ToolRule | None:
    """Return the policy's rule for a tool; None without one."""
    return spec.policy.tools.get(name) if spec.policy is not None else None


def pin_of(tool: Mapping[str, Any]) -> str:
    """Return the digest of everything that a model relies on, as `pin` in a policy."""
    annotations, schema, output = tool.get("annotations"), tool.get("inputSchema"), tool.get("outputSchema")
    return tool_pin(
        str(tool.get("name")),
        title=str(tool.get("title") or ""),
        description=str(tool.get("description") or ""),
        input_schema=schema if isinstance(schema, dict) else {},
        annotations=annotations if isinstance(annotations, dict) else {},
        output_schema=output if isinstance(output, dict) else None,
    )


def is_offered(spec: UpstreamSettings, tool: Mapping[str, Any]) -> bool:
    """Return whether the configuration and the policy offer the tool at all."""
    name = str(tool["name"])
    if not spec.includes(name):
        return False
    if spec.policy is None:
        return True
    rule = rule_of(spec, name)
    return rule is not None and rule.deny is None and not held_back(rule, tool)


def held_back(rule: ToolRule, tool: Mapping[str, Any]) -> bool:
    """Return whether the policy pins the tool to another form."""
    return rule.pin is not None and rule.pin != pin_of(tool)


def visibility(tool: Mapping[str, Any] | None, default: frozenset[str] = BOTH) -> frozenset[str]:
    """Return the permitted callers of a tool: `model`, `app`, both or none; `default` applies without a declaration."""
    declared = ui_of(tool).get("visibility")
    if declared is None:
        declared = _meta_of(tool).get(VISIBILITY)
    if declared is None:
        return default
    words = declared if isinstance(declared, list) else [declared]
    return frozenset(word for word in words if isinstance(word, str) and word in BOTH)


def ui_of(thing: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return `_meta.ui` of a tool or a resource."""
    ui = _meta_of(thing).get("ui")
    return ui if isinstance(ui, dict) else {}


def _meta_of(thing: Mapping[str, Any] | None) -> Mapping[str, Any]:
    meta = thing.get("_meta") if thing is not None else None
    return meta if isinstance(meta, dict) else {}


def app_of(tool: Mapping[str, Any]) -> str | None:
    """Return the URI of the app that a call of the tool shows."""
    uri = ui_of(tool).get("resourceUri", _meta_of(tool).get(RESOURCE_URI))
    return uri if isinstance(uri, str) and uri.startswith(APP_SCHEMES) else None


def visible_tools(
    spec: UpstreamSettings, tools: Iterable[Message], principal: Principal, *, to_app: bool
) -> list[Message]:
    """Return the tools that a client may see; `to_app` means that it shows MCP Apps, whose calls come through it."""
    callers = BOTH if to_app else MODEL
    offers = (tool for tool in tools if is_offered(spec, tool) and is_for(spec, str(tool["name"]), principal))
    return [describe(spec, _nest(tool)) for tool in offers if visibility(tool) & callers]


def is_for(spec: UpstreamSettings, name: str, principal: Principal) -> bool:
    """Return whether `principal` may call the tool, as far as only the facts of the principal tell."""
    return spec.policy is None or may_call_tool(spec.policy, name, principal, time.time())


def _nest(tool: Message) -> Message:
    """Return the tool with the visibility of its flat key in the place where hosts read it."""
    ui, meta = ui_of(tool), _meta_of(tool)
    if VISIBILITY not in meta or ui.get("visibility") is not None:
        return tool
    return {**tool, "_meta": {**meta, "ui": {**ui, "visibility": sorted(visibility(tool), reverse=True)}}}


def describe(spec: UpstreamSettings, tool: Message) -> Message:
    """Return the tool with the policy's description, if there is one."""
    rule = rule_of(spec, str(tool["name"]))
    return tool if rule is None or rule.description is None else {**tool, "description": rule.description}


def is_printable(name: str) -> bool:
    """Return whether a name has only printable characters, so that no display misrepresents it, not even a terminal."""
    return name.isprintable()


def _is_tool(tool: object) -> bool:
    name = tool.get("name") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or not isinstance(name, str) or not (name and is_printable(name)):
        return False
    schema, output = tool.get("inputSchema"), tool.get("outputSchema", {})
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(output, dict):
        return False
    objects = all(isinstance(tool.get(key, {}), dict) for key in ("_meta", "annotations"))
    return objects and all(isinstance(tool.get(key, ""), str) for key in ("description", "title"))


CONNECT = "connect_account"


def account_is_missing(refusal: Refusal) -> bool:
    """Return whether the refusal requires that a person connects an account."""
    return refusal.reason is Reason.CREDENTIAL_NEEDED


def instructions_without_account(spec: UpstreamSettings) -> str:
    """Return the instructions that replace the upstream's own."""
    return f"No account is connected for {spec.name} yet. Call {CONNECT}: its own tools are listed afterwards."


def list_without_account(spec: UpstreamSettings, method: str) -> Message:
    """Return an empty list, or the one tool."""
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    about = f"Connects this person's account at {spec.name}. Its own tools are listed afterwards."
    tool = {"name": CONNECT, "description": about, "inputSchema": schema}
    return {KEYS[method]: [tool] if method == "tools/list" else []}


def account_connected(spec: UpstreamSettings) -> Message:
    """Return the result of the tool."""
    text = f"The account is connected. The tools of {spec.name} are listed now."
    return {"content": [{"type": "text", "text": text}], "isError": False}
