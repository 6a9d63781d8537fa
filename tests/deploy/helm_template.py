"""Renders the chart of deploy/helm: the part of Helm's templates (Go's text/template with Sprig) that it uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

_ACTION = re.compile(r"\{\{(-)?\s*(.*?)\s*(-)?\}\}", re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\d+|[$.\w-]+|:=|[|(),]')


class TemplateError(Exception):
    """An action that this renderer does not know, or a value that the chart lacks."""


@dataclass(slots=True)
class _Block:
    """A block `if`, `range` or `define` with its body, and that of `else`."""

    head: str
    body: list[_Node] = field(default_factory=list)
    otherwise: list[_Node] = field(default_factory=list)


_Node = str | tuple[str] | _Block


def render(chart: Path, values: Mapping[str, Any] | None = None, release: str = "demo") -> list[dict[str, Any]]:
    """Return the manifests of a chart; `values` override those of values.yaml, mapping by mapping."""
    chosen = _merge(yaml.safe_load((chart / "values.yaml").read_text("utf-8")), values or {})
    about = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))
    top = {
        "Values": chosen,
        "Chart": {name[0].upper() + name[1:]: value for name, value in about.items()},
        "Release": {"Name": release, "Namespace": "default", "Service": "Helm"},
    }
    renderer = _Renderer(top)
    manifests = []
    for file in sorted((chart / "templates").iterdir()):
        text = renderer.run(_parse(file.read_text("utf-8")), top, {"$": top})
        manifests += [part for part in yaml.safe_load_all(text) if file.suffix == ".yaml" and part is not None]
    return manifests


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        known = merged.get(name)
        merged[name] = _merge(known, value) if isinstance(known, dict) and isinstance(value, Mapping) else value
    return merged


def _parse(text: str) -> list[_Node]:
    stack = [_Block("")]
    targets = [stack[0].body]
    for part in _split(text):
        word = part[0].split(maxsplit=1)[0] if isinstance(part, tuple) and part[0] else ""
        if word in ("if", "range", "define"):
            block = _Block(str(part[0]))
            targets[-1].append(block)
            stack.append(block)
            targets.append(block.body)
        elif word == "else":
            targets[-1] = stack[-1].otherwise
        elif word == "end":
            stack.pop()
            targets.pop()
        else:
            targets[-1].append(part)
    if len(stack) != 1:
        raise TemplateError(f"`{stack[-1].head}` has no end")
    return stack[0].body


def _split(text: str) -> Iterator[str | tuple[str]]:
    """Yield texts, and actions as tuples; `{{-` and `-}}` take the white space beside them."""
    position, trim = 0, False
    for action in _ACTION.finditer(text):
        before = text[position : action.start()]
        before = before.lstrip() if trim else before
        yield before.rstrip() if action[1] else before
        if not action[2].startswith("/*"):
            yield (action[2],)
        position, trim = action.end(), bool(action[3])
    yield text[position:].lstrip() if trim else text[position:]


class _Renderer:
    def __init__(self, top: Mapping[str, Any]) -> None:
        self._top = top
        self._defined: dict[str, list[_Node]] = {}

    def run(self, nodes: list[_Node], dot: Any, names: dict[str, Any]) -> str:
        return "".join(self._node(node, dot, names) for node in nodes)

    def _node(self, node: _Node, dot: Any, names: dict[str, Any]) -> str:
        if isinstance(node, str):
            return node
        if isinstance(node, _Block):
            return self._block(node, dot, names)
        tokens = _TOKEN.findall(node[0])
        if len(tokens) > 2 and tokens[1] == ":=":
            names[tokens[0]] = self._pipeline(tokens[2:], dot, names)
            return ""
        value = self._pipeline(tokens, dot, names)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _block(self, block: _Block, dot: Any, names: dict[str, Any]) -> str:
        word, _, rest = block.head.partition(" ")
        tokens = _TOKEN.findall(rest)
        if word == "define":
            self._defined[tokens[0].strip('"')] = block.body
            return ""
        if word == "if":
            return self.run(block.body if self._pipeline(tokens, dot, names) else block.otherwise, dot, names)
        declared = [token for token in tokens[: tokens.index(":=")] if token != ","] if ":=" in tokens else []
        over = self._pipeline(tokens[tokens.index(":=") + 1 :] if declared else tokens, dot, names)
        pairs = sorted(over.items()) if isinstance(over, dict) else list(enumerate(over))
        parts = []
        for pair in pairs:
            chosen = pair[-len(declared) :] if declared else ()
            inner = {**names, **dict(zip(declared, chosen, strict=True))}
            parts.append(self.run(block.body, pair[1], inner))
        return "".join(parts) if pairs else self.run(block.otherwise, dot, names)

    def _pipeline(self, tokens: list[str], dot: Any, names: dict[str, Any]) -> Any:
        value, stage, depth, given = None, [], 0, False
        for token in [*tokens, "|"]:
            depth += (token == "(") - (token == ")")
            if token != "|" or depth:
                stage.append(token)
                continue
            value = self._command(stage, dot, names, [value] if given else [])
            stage, given = [], True
        return value

    def _command(self, tokens: list[str], dot: Any, names: dict[str, Any], piped: list[Any]) -> Any:
        word, arguments = tokens[0], self._arguments(tokens[1:], dot, names) + piped
        if word == "include":
            return self.run(self._defined[arguments[0]], arguments[1], {"$": self._top})
        if word in FUNCTIONS:
            return FUNCTIONS[word](*arguments)
        if arguments:
            raise TemplateError(f"the function {word} is unknown")
        return self._arguments(tokens, dot, names)[0]

    def _arguments(self, tokens: list[str], dot: Any, names: dict[str, Any]) -> list[Any]:
        values, index = [], 0
        while index < len(tokens):
            token = tokens[index]
            if token == "(":
                end, depth = index, 0
                while True:
                    depth += (tokens[end] == "(") - (tokens[end] == ")")
                    if not depth:
                        break
                    end += 1
                values.append(self._pipeline(tokens[index + 1 : end], dot, names))
                index = end
            else:
                values.append(_operand(token, dot, names))
            index += 1
        return values


def _operand(token: str, dot: Any, names: dict[str, Any]) -> Any:
    if token.startswith('"'):
        return token[1:-1].replace('\\"', '"')
    if token.isdigit():
        return int(token)
    name, _, path = token.partition(".")
    if name and name not in names:
        raise TemplateError(f"{token} is not defined")
    value = names[name] if name else dot
    for key in filter(None, path.split(".")):
        if not isinstance(value, Mapping) or key not in value:
            raise TemplateError(f"{token}: values.yaml has no such key")
        value = value[key]
    return value


def _indent(width: int, text: Any) -> str:
    return "\n" + "\n".join(f"{' ' * width}{line}".rstrip() for line in str(text).split("\n"))


def _quote(value: Any) -> str:
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _fail(message: str) -> NoReturn:
    raise TemplateError(message)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda *numbers: sum(numbers),
    "and": lambda *values: next((value for value in values if not value), values[-1]),
    "default": lambda other, value: value or other,
    "fail": _fail,
    "gt": lambda one, other: one > other,
    "hasKey": lambda mapping, key: key in mapping,
    "int": int,
    "list": lambda *values: list(values),
    "nindent": _indent,
    "not": lambda value: not value,
    "or": lambda *values: next((value for value in values if value), values[-1]),
    "quote": _quote,
    "replace": lambda old, new, text: text.replace(old, new),
    "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).rstrip("\n"),
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trunc": lambda length, text: text[:length],
}
"""Helm's functions, their arguments in Helm's order."""
