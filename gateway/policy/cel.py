"""Compiles conditions for the CEL engine: rewritten with a variable for each fact, without unbounded work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.policy.regexes import Regex

if TYPE_CHECKING:
    from cel import Program
import json
from dataclasses import dataclass
from typing import Final

from gateway.policy import facts
from gateway.policy.expressions import (
    MACROS,
    RESERVED,
    CallExpression,
    Index,
    ListExpression,
    Literal,
    Macro,
    Mapped,
    Name,
    Operation,
    Select,
    Tree,
)
from gateway.policy.facts import Finder, Path, Vocabulary
from gateway.policy.regexes import bounded_regex


def compiled(text: str) -> Program:
    """Compile a CEL expression. Raises the engine's errors: ValueError, RuntimeError."""
    # The engine's package imports its own command line, which takes 150 ms.
    import cel  # noqa: PLC0415  # here, so that only policies with conditions pay for it

    return cel.compile(text)


def pattern_program(regex: Regex) -> Program:
    """Compile a search for `regex` in the string `v`. Raises ValueError if the engine rejects it."""
    try:
        program = compiled(f"v.matches({quoted(regex.text)})")
        program.execute({"v": ""})
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"the regular expression {quoted(regex.text[:60])} is refused: {told(error)}") from error
    return program


def quoted(text: str) -> str:
    """Quote `text` as a CEL string."""
    return '"' + "".join(map(_quoted_char, text)) + '"'


def _quoted_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isascii() and char.isprintable():
        return char
    return f"\\U{ord(char):08X}"


def told(error: Exception) -> str:
    """Return the first sentence of the engine's error."""
    return f"it failed: {str(error).partition(chr(10))[0].partition('. ')[0][:120]}"


_METHODS: Final = {"contains": 1, "startsWith": 1, "endsWith": 1, "matches": 1, "size": 0}
_FUNCTIONS: Final = frozenset({"size", "int", "double", "string", "timestamp", "duration"})


@dataclass(frozen=True, slots=True)
class Slot:
    """A variable of the engine: its fact, or (`presence`) whether that exists."""

    variable: str
    path: Path
    find: Finder
    presence: bool = False

    @property
    def shown(self) -> str:
        """The fact as the condition writes it."""
        return f"has({facts.shown(self.path)})" if self.presence else facts.shown(self.path)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A macro: the variables it iterates, those used for each item, whether it copies, and its regular expressions."""

    over: frozenset[str]
    inner: frozenset[str]
    copies: bool
    regexes: int


_PRESENCE: Final = {"has": facts.presence, "in": facts.membership}
_OBJECTS: Final = (("request", "body"), ("principal", "claims"))


class CelWriter:
    """Writes a tree as CEL with a variable for each fact; collects these, and the sweeps of macros."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.slots: dict[tuple[Path, str], Slot] = {}
        self.sweeps: list[Sweep] = []
        self.regexes = 0
        self.used: set[str] = set()
        self.item: str | None = None

    def text(self, tree: Tree, *, several: bool = False) -> str:
        """Return the CEL of `tree`; `several` means that a list is expected."""
        path = self._path(tree)
        if path is not None:
            return self._slot(path, "list" if several else "one")
        match tree:
            case Literal(value):
                return quoted(value) if isinstance(value, str) else json.dumps(value)
            case Name(name):
                return name
            case Select(target, name):
                inner = self.text(target, several=True)
                return f"{inner}[{quoted(name)}]" if name in RESERVED else f"{inner}.{name}"
            case Index(target, key):
                return f"{self.text(target, several=True)}[{self.text(key)}]"
            case ListExpression(items):
                return f"[{', '.join(map(self.text, items))}]"
            case Mapped(entries):
                return f"{{{', '.join(f'{self.text(key)}: {self.text(value)}' for key, value in entries)}}}"
            case CallExpression():
                return self._call(tree)
            case Macro():
                return self._macro(tree)
            case Operation():
                return self._operation(tree)

    def _path(self, tree: Tree) -> Path | None:
        """Return the fact that a chain of names and constant keys means, or None."""
        parts: list[str | int] = []
        while not isinstance(tree, Name):
            match tree:
                case Select(target, name):
                    parts.append(name)
                    tree = target
                case Index(target, Literal(key)) if isinstance(key, str) or (type(key) is int and key >= 0):
                    parts.append(key)
                    tree = target
                case Index(target, _):
                    # A computed key: the fact is left of it, the engine evaluates the rest.
                    return None
                case _:
                    return None
        if tree.name == self.item:
            return None
        return (tree.name, *reversed(parts))

    def _named_in(self, operation: Operation) -> tuple[Path, str] | None:
        """Return the fact of `"name" in request.body`; headers and queries act as has(…), which sees case variants."""
        match operation:
            case Operation("in", (Literal(str(name)), right)):
                path = self._path(right)
                if path in (("request", "query"), ("request", "headers")):
                    return (*path, name), "has"
                if path is not None and (path[:2] in _OBJECTS or path[0] == "arguments"):
                    return (*path, name), "in"
                return None
            case _:
                return None

    def _slot(self, path: Path, use: str) -> str:
        self.vocabulary.check(path)
        scalar = use == "one" and facts.repeated(path)
        key = (path, use if facts.repeated(path) or use in _PRESENCE else "")
        if key not in self.slots:
            present = use in _PRESENCE
            found = _PRESENCE[use](path) if present else facts.finder(path, scalar=scalar)
            self.slots[key] = Slot(f"v{len(self.slots)}", path, found, present)
        self.used.add(self.slots[key].variable)
        return self.slots[key].variable

    def _call(self, call: CallExpression) -> str:
        if call.function == "has" and call.target is None:
            return self._has(call)
        if call.target is None:
            if call.function not in _FUNCTIONS or len(call.arguments) != 1:
                names = ", ".join(sorted(_FUNCTIONS))
                raise ValueError(f"the function {call.function} is unknown here (known, with one value: {names}, has)")
            return f"{call.function}({self.text(call.arguments[0], several=call.function == 'size')})"
        if len(call.arguments) != _METHODS.get(call.function, -1):
            names = ", ".join(sorted({*_METHODS, *MACROS}))
            raise ValueError(f"the method {call.function} is unknown here, or has too many values (known: {names})")
        target = self.text(call.target, several=call.function == "size")
        if call.function == "matches":
            return f"{_bracketed(call.target, target)}.matches({self._regex(call.arguments[0])})"
        arguments = ", ".join(map(self.text, call.arguments))
        return f"{_bracketed(call.target, target)}.{call.function}({arguments})"

    def _regex(self, tree: Tree) -> str:
        if not isinstance(tree, Literal) or not isinstance(tree.value, str):
            raise ValueError("a regular expression must be written out: matches('…')")
        regex = bounded_regex(tree.value)
        pattern_program(regex)
        self.regexes += regex.size + 1
        return quoted(regex.text)

    def _has(self, call: CallExpression) -> str:
        tree = call.arguments[0] if len(call.arguments) == 1 else None
        if not isinstance(tree, Select | Index):
            raise ValueError("has(…) takes a field, such as has(request.body.total)")
        path = self._path(tree)
        if path is None and isinstance(tree, Select) and tree.field not in RESERVED:
            return f"has({self.text(tree.target, several=True)}.{tree.field})"
        if path is None:
            raise ValueError("has(…) takes a field, such as has(request.body.total)")
        return self._slot(path, "has")

    def _macro(self, macro: Macro) -> str:
        if self.item is not None:
            raise ValueError(f".{macro.kind}(…) inside of another is refused: its cost would multiply")
        if macro.variable in (*self.vocabulary.roots, *_FUNCTIONS, "has") or macro.variable[:1] == "v":
            raise ValueError(f'"{macro.variable}" cannot name the items: take another name, not beginning with v')
        used, self.used = self.used, set()
        target = self.text(macro.target, several=True)
        over, self.used = frozenset(self.used), set()
        regexes, self.regexes, self.item = self.regexes, 0, macro.variable
        bodies = ", ".join(map(self.text, macro.bodies))
        self.sweeps.append(Sweep(over, frozenset(self.used), macro.kind in ("map", "filter"), self.regexes))
        self.used, self.regexes, self.item = used | over | self.used, regexes, None
        return f"{_bracketed(macro.target, target)}.{macro.kind}({macro.variable}, {bodies})"

    def _operation(self, operation: Operation) -> str:
        operator, operands = operation.operator, operation.operands
        named = self._named_in(operation)
        if named is not None:
            return self._slot(*named)
        lists = any(isinstance(operand, ListExpression) for operand in operands)
        texts = [
            self.text(operand, several=lists or (operator == "in" and place == 1))
            for place, operand in enumerate(operands)
        ]
        if operator == "?:":
            chosen = [f"({text})" for text in texts]
            return f"{chosen[0]} ? {chosen[1]} : {chosen[2]}"
        if len(operands) == 1:
            return operator + _bracketed(operands[0], texts[0])
        first = operands[0]
        chained = isinstance(first, Operation) and first.operator == operator and operator in ("&&", "||", "+", "*")
        left = texts[0] if chained else _bracketed(first, texts[0])
        return f"{left} {operator} {_bracketed(operands[1], texts[1])}"


def _bracketed(tree: Tree, text: str) -> str:
    return f"({text})" if isinstance(tree, Operation) or text.startswith("-") else text
