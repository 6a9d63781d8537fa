"""Parses the subset of CEL that conditions use into a tree.

Engine and gateway must not read a text differently: the engine runs a text written from this tree (`writing`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

MAX_SOURCE: Final = 1024
MAX_NESTING: Final = 24
MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
RESERVED: Final = frozenset({
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
    "package", "namespace", "null", "return", "true", "var", "void", "while",
})  # fmt: skip

_TOKEN = re.compile(
    r"""\s+
      | (?P<float>\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))(?![A-Za-z0-9_.])
      | (?P<int>0x[0-9A-Fa-f]+|\d+)(?![A-Za-z0-9_])
      | (?P<raw>r(?:"[^"\r\n]*"|'[^'\r\n]*'))
      | (?P<text>"(?:[^"\\\r\n]|\\.)*"|'(?:[^'\\\r\n]|\\.)*')
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)(?!["'])
      | (?P<symbol>&&|\|\||<=|>=|==|!=|[-+*/%<>!?:.,()\[\]{}])""",
    re.ASCII | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.ASCII | re.DOTALL)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
_BINARY: Final = (("||",), ("&&",), ("<=", ">=", "==", "!=", "<", ">", "in"), ("+", "-"), ("*", "/", "%"))


@dataclass(frozen=True, slots=True)
class Literal:
    """A string, number, true, false or null."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Name:
    """A lone name: of a fact, or of a macro's variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`target.field`."""

    target: Tree
    field: str


@dataclass(frozen=True, slots=True)
class Index:
    """`target[key]`."""

    target: Tree
    key: Tree


@dataclass(frozen=True, slots=True)
class CallExpression:
    """A function call, or a method call if it has a target."""

    function: str
    target: Tree | None
    arguments: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Macro:
    """`target.all(variable, …)` and the other macros."""

    kind: str
    target: Tree
    variable: str
    bodies: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator with one, two or (`?:`) three operands."""

    operator: str
    operands: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class ListExpression:
    """`[a, b]`."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class MapExpression:
    """`{a: b}`."""

    entries: tuple[tuple[Tree, Tree], ...]


Tree: TypeAlias = Literal | Name | Select | Index | CallExpression | Macro | Operation | ListExpression | MapExpression


def parse_expression(source: str) -> Tree:
    """Parse `source`. Raises ValueError with the remedy."""
    if len(source.encode()) > MAX_SOURCE:
        raise ValueError(f"a condition may have {MAX_SOURCE} bytes at most")
    return _Parser(source).expression()


class _Parser:
    """Recursive descent over the tokens; `depth` counts the nesting."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = [*_tokens(source), ("end", "")]
        self.place = 0
        self.depth = 0

    def expression(self) -> Tree:
        """Parse the whole text."""
        tree = self.choice()
        if self.tokens[self.place][0] != "end":
            raise self.unexpected_token()
        return tree

    def choice(self) -> Tree:
        """Parse `a ? b : c`, or a tighter-binding expression."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise ValueError(f"the condition is nested deeper than {MAX_NESTING} levels")
        tree = self.binary(0)
        if self.consume("?"):
            chosen = self.binary(0)
            self.expect(":")
            tree = Operation("?:", (tree, chosen, self.choice()))
        self.depth -= 1
        return tree

    def binary(self, level: int) -> Tree:
        """Parse operators of `_BINARY[level]` and tighter."""
        if level == len(_BINARY):
            return self.unary()
        tree = self.binary(level + 1)
        while (operator := self.operator(_BINARY[level])) is not None:
            tree = Operation(operator, (tree, self.binary(level + 1)))
            if "==" in _BINARY[level] and self.operator(_BINARY[level]) is not None:
                raise ValueError("comparisons in a row need parentheses")
        return tree

    def operator(self, operators: tuple[str, ...]) -> str | None:
        """Consume and return the next token if it is one of `operators`."""
        kind, text = self.tokens[self.place]
        if text not in operators or kind not in ("symbol", "name"):
            return None
        self.place += 1
        return text

    def unary(self) -> Tree:
        """Parse `!a`, `-a`, or a member."""
        kind, text = self.tokens[self.place]
        if kind != "symbol" or text not in ("!", "-"):
            return self.member()
        self.place += 1
        if self.tokens[self.place] in (("symbol", "!"), ("symbol", "-")):
            raise ValueError(f"{text} in a row needs parentheses")
        operand = self.member()
        if text == "-" and isinstance(operand, Literal) and type(operand.value) in (int, float):
            return Literal(-operand.value)  # type: ignore[operator]  # a number, as the line above checks
        return Operation(text, (operand,))

    def member(self) -> Tree:
        """Parse a value with its `.field`, `.method(…)` and `[key]`."""
        tree = self.primary()
        while True:
            if self.consume("."):
                tree = self.selector(tree, self.name())
            elif self.consume("["):
                tree = Index(tree, self.choice())
                self.expect("]")
            else:
                return tree

    def selector(self, tree: Tree, name: str) -> Tree:
        """Parse `.name` of a tree: a field, a method, or a macro."""
        if not self.consume("("):
            return Select(tree, name)
        arguments = self.items(")", self.choice)
        if name not in MACROS:
            return CallExpression(name, tree, arguments)
        variable = arguments[0] if arguments else None
        if not isinstance(variable, Name) or len(arguments) not in ((2, 3) if name == "map" else (2,)):
            raise ValueError(f"write .{name}(item, …): a name for each item, and a condition on it")
        return Macro(name, tree, variable.name, arguments[1:])

    def primary(self) -> Tree:
        """Parse a literal, a name, a function call, or a bracketed expression."""
        kind, text = self.tokens[self.place]
        self.place += 1
        match kind:
            case "int":
                return Literal(_integer(text))
            case "float":
                return Literal(_float(text))
            case "raw":
                return Literal(text[2:-1])
            case "text":
                return Literal(_ESCAPE.sub(_unescape, text[1:-1]))
            case "name" if text in ("true", "false", "null"):
                return Literal({"true": True, "false": False, "null": None}[text])
            case "name" if text not in RESERVED:
                return CallExpression(text, None, self.items(")", self.choice)) if self.consume("(") else Name(text)
            case "symbol" if text == "(":
                tree = self.choice()
                self.expect(")")
                return tree
            case "symbol" if text == "[":
                return ListExpression(self.items("]", self.choice))
            case "symbol" if text == "{":
                return MapExpression(self.items("}", self.entry))
        self.place -= 1
        raise self.unexpected_token()

    def entry(self) -> tuple[Tree, Tree]:
        """Parse `key: value` of a map."""
        key = self.choice()
        self.expect(":")
        return key, self.choice()

    def items(self, end: str, one: Callable[[], T]) -> tuple[T, ...]:
        """Parse a comma-separated list up to `end`."""
        result: list[T] = []
        while not self.consume(end):
            if result:
                self.expect(",")
            result.append(one())
        return tuple(result)

    def name(self) -> str:
        """Consume the field or method name after a dot."""
        kind, text = self.tokens[self.place]
        if kind != "name":
            raise self.unexpected_token()
        self.place += 1
        return text

    def consume(self, text: str) -> bool:
        """Consume the symbol `text` if it is next; return whether it was."""
        if self.tokens[self.place] != ("symbol", text):
            return False
        self.place += 1
        return True

    def expect(self, text: str) -> None:
        """Consume the symbol `text`. Raises ValueError if it is not next."""
        if not self.consume(text):
            raise self.unexpected_token(f', "{text}" is expected')

    def unexpected_token(self, expected: str = "") -> ValueError:
        """Return an error about the next token."""
        kind, text = self.tokens[self.place]
        where = "the condition ends too early" if kind == "end" else f"{text[:40]} is not expected there"
        return ValueError(f"{where}{expected}: {self.source[:80]}")


def _tokens(source: str) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(source):
        match = _TOKEN.match(source, place)
        if match is None:
            raise ValueError(f"{source[place : place + 20]!r} is not part of a condition")
        if match.lastgroup is not None:
            yield match.lastgroup, match[0]
        place = match.end()


def _integer(text: str) -> int:
    number = int(text, 16) if text.startswith("0x") else int(text)
    if number > 2**53:
        raise ValueError(f"{text} is beyond 2^53, where not every reader of JSON counts exactly")
    return number


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _unescape(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    if digits is None:
        if match[4] not in _CONTROLS:
            raise ValueError(f"\\{match[4]} is not supported in a string; write \\\\ for a backslash, or r'…'")
        return _CONTROLS[match[4]]
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError(f"{match[0]} is no character")
    return chr(code)
