"""Reads `confirm` of a rule: which initiators' calls need an approval, and the text of the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.documents import Section, suggestion
from gateway.documents.nodes import quote
from gateway.model import Initiator
from gateway.policy import facts
from gateway.policy.facts import FactSource, Finder, Missing, Path, Vocabulary
from gateway.policy.messages import MessageTemplate, parse_message
from gateway.policy.obligations import parse_text
from gateway.policy.rules import Confirm

LONGEST_GRANT: Final = 8 * 3600.0
LONGEST_TIMEOUT: Final = 3600.0
ROUTE_MESSAGE: Final = "Allow {request.method} {request.path}?"
TOOL_MESSAGE: Final = "Run {tool}?"
LINK_MESSAGE: Final = "Open {link} in the browser?"


def read_confirm(section: Section, vocabulary: Vocabulary, default: str) -> Confirm | None:
    """Read the question of a rule, None without one; `default` is its text if the file has none."""
    node = section.get("confirm")
    if node is None:
        return None
    if node.value != "always" and not isinstance(node.value, Mapping):
        section.problem(f"must be always, or a mapping such as {{when: model}}, not {node.kind}", "confirm")
    if not isinstance(node.value, Mapping):
        return question(None, default)
    rule = section.section("confirm")
    when = rule.get("when")
    words = (when.value,) if when is not None and isinstance(when.value, str) else rule.texts("when", ("always",))
    allowed = ("always", *Initiator)
    for word in words:
        if word not in allowed:
            near = suggestion(word, allowed)
            rule.problem(f"must be one of {', '.join(allowed)}, not {quote(word)}{near}", "when")
    if not words:
        rule.problem(f"must be one of {', '.join(allowed)}", "when")
    message = parse_text(rule, "message", parse_message, rule.text("message", default)) or parse_message(default)
    for name in message.names:
        try:
            vocabulary.check(path_of(name))
        except ValueError:
            rule.problem(f"{{{name}}} is unknown here (known: {vocabulary.listing})", "message")
            message = parse_message(default)  # the other keys are read all the same
            break
    return Confirm(
        _initiators(words),
        message,
        tuple(map(_finder, message.names)),
        _read_duration(rule, "grant", LONGEST_GRANT, "8h, such as 10m"),
        _read_duration(rule, "timeout", LONGEST_TIMEOUT, "1h, such as 5m"),
    )


def _read_duration(rule: Section, name: str, longest: float, words: str) -> float | None:
    if rule.get(name) is None:
        return None
    seconds = rule.duration(name, longest)
    if not 0 < seconds <= longest:
        rule.problem(f"must be a time of more than 0s and at most {words}", name)
        return None
    return seconds


def question(initiators: frozenset[Initiator] | None, text: str) -> Confirm:
    """Return a question with a built-in text."""
    message = parse_message(text)
    return Confirm(initiators, message, tuple(map(_finder, message.names)))


def path_of(name: str) -> Path:
    """Return the path of the fact that a placeholder names, such as `request.body.items.0.id`."""
    parts = name.split(".")
    fixed = 1 if parts[0] == "arguments" else 2
    listed = parts[0] == "arguments" or parts[:2] in (["request", "body"], ["principal", "claims"])
    return tuple(
        int(part) if listed and place >= fixed and part.isdigit() else part for place, part in enumerate(parts)
    )


def reads_body(message: MessageTemplate) -> bool:
    """Return whether a message shows a part of the body."""
    return any(path_of(name)[:2] == ("request", "body") for name in message.names)


def _finder(name: str) -> Finder:
    """Return the finder of a placeholder's value; it returns None if the fact is missing."""
    path = path_of(name)
    if path == ("request", "query"):
        return lambda source: source.request.query if source.request is not None else None
    find = facts.finder(path)

    def show(source: FactSource) -> object:
        value = find(source)
        if isinstance(value, Missing):
            return f"({value.why})" if value.odd else None
        return value[0] if facts.is_repeated(path) and isinstance(value, list) and len(value) == 1 else value

    return show


def _initiators(words: tuple[str, ...]) -> frozenset[Initiator] | None:
    return None if "always" in words else frozenset(Initiator(word) for word in words if word in tuple(Initiator))
