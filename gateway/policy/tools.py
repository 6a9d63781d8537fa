"""Reads `tools` of a policy file: the page's WebMCP tools that a model may call, and their rules."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from gateway.documents import Section
from gateway.jsontext.writing import sorted_compact_json
from gateway.policy.conditions import parse_condition
from gateway.policy.confirm import TOOL_MESSAGE, read_confirm
from gateway.policy.facts import Vocabulary
from gateway.policy.obligations import parse_text, read_quotas, read_rates
from gateway.policy.rules import ToolRule

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}", re.ASCII)
_PIN = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_VOCABULARY = Vocabulary(None)


def read_tools(top: Section) -> dict[str, ToolRule]:
    """Read all tool rules of the file by the page's names of the tools."""
    return {name: read_tool(name, section, file=_part(top, section)) for name, section in top.named("tools").items()}


def _part(top: Section, section: Section) -> str:
    """Return the part that a section comes from; empty for the policy's own file."""
    return "" if section.node.file == top.node.file else section.node.file


def tool_pin(
    name: str,
    *,
    title: str,
    description: str,
    input_schema: Mapping[str, object],
    annotations: Mapping[str, object],
    output_schema: Mapping[str, object] | None = None,
) -> str:
    """Return the `pin` for a tool as the page offers it: a digest of everything that a model sees."""
    parts: list[object] = [name, title, description, input_schema, annotations]
    if output_schema is not None:  # many tools have none
        parts.append(output_schema)
    text = sorted_compact_json(parts)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def read_tool(name: str, section: Section, scope: str = "", *, file: str = "") -> ToolRule:
    """Read one rule; `scope` begins the scopes of its limits, `file` is the part that it comes from."""
    scoped = f"{scope} tool {name}".strip()
    if not _NAME.fullmatch(name):
        section.problem(f'"{name[:40]}" is not the name of a WebMCP tool (1 to 128 of A-Z a-z 0-9 _ . -)')
    rule = ToolRule(
        name=name,
        line=section.node.line,
        deny=section.text("deny") or None,
        confirm=read_confirm(section, _VOCABULARY, TOOL_MESSAGE),
        limits=read_rates(section, scoped),
        description=section.text("description") or None,
        quotas=read_quotas(section, scoped),
        pin=section.text("pin") or None,
        timeout=section.duration("timeout") or None,
        when=parse_text(section, "when", lambda text: parse_condition(text, _VOCABULARY), section.text("when")),
        file=file,
    )
    if rule.pin is not None and not _PIN.fullmatch(rule.pin):
        section.problem('must be "sha256:" and 64 hex digits, as the gateway logs it', "pin")
    if rule.deny is not None:
        alone(section, "deny", "description")
    return rule


def alone(section: Section, *keys: str) -> None:
    """Report each key that has no meaning beside `deny`."""
    for key in section:
        if key not in keys and section.get(key) is not None:
            section.problem('has no meaning beside "deny": leave it out', key)
