"""Conditions in CEL, sandboxed: checked at load, evaluated only on the facts they name, at a bounded cost.

The engine has no step limit and holds the GIL, so the limit is on its input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.jsontext.writing import plain_json
from gateway.policy.regexes import Regex

if TYPE_CHECKING:
    from cel import Program
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.errors import Reason
from gateway.policy.expressions import parse_expression
from gateway.policy.facts import FactSource, Missing, Vocabulary

if TYPE_CHECKING:
    from cel import Program


from gateway.policy import facts
from gateway.policy.expressions import (
    MACROS,
    RESERVED,
    CallExpression,
    Index,
    ListExpression,
    Literal,
    Macro,
    MapExpression,
    Name,
    Operation,
    Select,
    Tree,
)
from gateway.policy.facts import Finder, Path
from gateway.policy.regexes import bounded_regex


def compile_cel(text: str) -> Program:
    """Compile a CEL expression. Raises the engine's errors: ValueError, RuntimeError."""
    # The engine's package imports its own command line, which takes 150 ms.
    import cel  # noqa: PLC0415  # here, so that only policies with conditions pay for it

    return cel.compile(text)


def pattern_program(regex: Regex) -> Program:
    """Compile a search for `regex` in the string `v`. Raises ValueError if the engine rejects it."""
    try:
        program = compile_cel(f"v.matches({quote_cel(regex.text)})")
        program.execute({"v": ""})
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"the regular expression {quote_cel(regex.text[:60])} is refused: {error_sentence(error)}"
        ) from error
    return program


def quote_cel(text: str) -> str:
    """Quote `text` as a CEL string."""
    return '"' + "".join(map(_quoted_char, text)) + '"'


def _quoted_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isascii() and char.isprintable():
        return char
    return f"\\U{ord(char):08X}"


def error_sentence(error: Exception) -> str:
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
    def source_text(self) -> str:
        """The fact as the condition writes it."""
        return f"has({facts.fact_name(self.path)})" if self.presence else facts.fact_name(self.path)


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
        self.facts: set[str] = set()
        self.item: str | None = None

    def text(self, tree: Tree, *, several: bool = False) -> str:
        """Return the CEL of `tree`; `several` means that a list is expected."""
        path = self._path(tree)
        if path is not None:
            return self._slot(path, "list" if several else "one")
        match tree:
            case Literal(value):
                return quote_cel(value) if isinstance(value, str) else plain_json(value)
            case Name(name):
                return name
            case Select(target, name):
                inner = self.text(target, several=True)
                return f"{inner}[{quote_cel(name)}]" if name in RESERVED else f"{inner}.{name}"
            case Index(target, key):
                return f"{self.text(target, several=True)}[{self.text(key)}]"
            case ListExpression(items):
                return f"[{', '.join(map(self.text, items))}]"
            case MapExpression(entries):
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
        scalar = use == "one" and facts.is_repeated(path)
        key = (path, use if facts.is_repeated(path) or use in _PRESENCE else "")
        if key not in self.slots:
            present = use in _PRESENCE
            finder = _PRESENCE[use](path) if present else facts.finder(path, scalar=scalar)
            self.slots[key] = Slot(f"v{len(self.slots)}", path, finder, present)
        self.facts.add(self.slots[key].variable)
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
            return f"{_bracket(call.target, target)}.matches({self._regex(call.arguments[0])})"
        arguments = ", ".join(map(self.text, call.arguments))
        return f"{_bracket(call.target, target)}.{call.function}({arguments})"

    def _regex(self, tree: Tree) -> str:
        if not isinstance(tree, Literal) or not isinstance(tree.value, str):
            raise ValueError("a regular expression must be written out: matches('…')")
        regex = bounded_regex(tree.value)
        pattern_program(regex)
        self.regexes += regex.size + 1
        return quote_cel(regex.text)

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
        used, self.facts = self.facts, set()
        target = self.text(macro.target, several=True)
        over, self.facts = frozenset(self.facts), set()
        regexes, self.regexes, self.item = self.regexes, 0, macro.variable
        bodies = ", ".join(map(self.text, macro.bodies))
        self.sweeps.append(Sweep(over, frozenset(self.facts), macro.kind in ("map", "filter"), self.regexes))
        self.facts, self.regexes, self.item = used | over | self.facts, regexes, None
        return f"{_bracket(macro.target, target)}.{macro.kind}({macro.variable}, {bodies})"

    def _operation(self, operation: Operation) -> str:
        operator, operands = operation.operator, operation.operands
        names = self._named_in(operation)
        if names is not None:
            return self._slot(*names)
        lists = any(isinstance(operand, ListExpression) for operand in operands)
        texts = [
            self.text(operand, several=lists or (operator == "in" and place == 1))
            for place, operand in enumerate(operands)
        ]
        if operator == "?:":
            choices = [f"({text})" for text in texts]
            return f"{choices[0]} ? {choices[1]} : {choices[2]}"
        if len(operands) == 1:
            return operator + _bracket(operands[0], texts[0])
        first = operands[0]
        chained = isinstance(first, Operation) and first.operator == operator and operator in ("&&", "||", "+", "*")
        left = texts[0] if chained else _bracket(first, texts[0])
        return f"{left} {operator} {_bracket(operands[1], texts[1])}"


def _bracket(tree: Tree, text: str) -> str:
    return f"({text})" if isinstance(tree, Operation) or text.startswith("-") else text


FALSE: Final = "it is false"
"""The reason why a condition that was evaluated without an error does not hold."""

MAX_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 64
MAX_COST: Final = 2_000_000
"""Maximum cost of macros over lists and of regular expressions, in units of about 40 ns."""

_REGEX: Final = 800
_REGEX_PLACE: Final = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a condition is not true."""

    why: str
    reason: Reason = Reason.POLICY_DENIED


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition; `regexes` is the size of the regular expressions outside macros."""

    text: str
    program: Program
    slots: tuple[Slot, ...]
    sweeps: tuple[Sweep, ...]
    regexes: int

    def failure(self, source: FactSource) -> Failure | None:
        """Return None if and only if the condition is true of `source`."""
        values: dict[str, object] = {}
        missing_slots: list[tuple[Slot, Missing]] = []
        room = _Room()
        for slot in self.slots:
            value = slot.find(source)
            if isinstance(value, Missing):
                missing_slots.append((slot, value))
            elif room.takes(slot.variable, value):
                values[slot.variable] = value
            else:
                return Failure(f"{slot.source_text} is larger than conditions may read", Reason.CONDITION_LIMIT)
        if (self.sweeps or self.regexes) and self._cost(room) > MAX_COST:
            return Failure("it would take too long on a value of that size", Reason.CONDITION_LIMIT)
        return self._run(values, missing_slots)

    def values(self, source: FactSource) -> Iterator[tuple[str, object]]:
        """Yield each fact that the condition names, with its value or `Missing`."""
        for slot in self.slots:
            if not slot.presence:
                yield slot.source_text, slot.find(source)

    def reads(self, *path: str) -> bool:
        """Return whether it names a fact at or below `path`."""
        return any(slot.path[: len(path)] == path for slot in self.slots)

    @property
    def of_principal(self) -> bool:
        """True if it names facts of the principal and no others, so that it can be evaluated before a call."""
        return all(slot.path[0] == "principal" for slot in self.slots)

    def _run(self, values: Mapping[str, object], missing_slots: list[tuple[Slot, Missing]]) -> Failure | None:
        try:
            result = self.program.execute(dict(values))
        except (ValueError, TypeError, RuntimeError, ArithmeticError, LookupError) as error:
            if missing_slots:
                slot, missing = missing_slots[0]
                return Failure(f"{slot.source_text} {missing.why}")
            return Failure(error_sentence(error))
        except BaseException as error:
            # A panic of the engine is not an Exception; it denies like every error.
            if type(error).__name__ != "PanicException":
                raise
            return Failure("the engine failed")
        if result is True:
            return None
        return Failure(FALSE if result is False else "its value is neither true nor false")

    def _cost(self, room: _Room) -> int:
        cost = _match_cost(self.regexes, room.bytes) if self.regexes else 0
        for sweep in self.sweeps:
            items = sum(room.counts.get(name, 0) for name in sweep.over) + 1
            inner = sum(room.counts.get(name, 0) + room.sizes.get(name, 0) // 64 for name in sweep.inner)
            each = 8 + inner + (items if sweep.copies else 0)
            cost += items * each
            if sweep.regexes:
                size = room.bytes if sweep.inner else room.bytes // items
                cost += items * _match_cost(sweep.regexes, size)
        return cost


def parse_condition(source: str, vocabulary: Vocabulary) -> Condition:
    """Compile the condition in `source`. Raises ValueError with the remedy."""
    writer = CelWriter(vocabulary)
    text = writer.text(parse_expression(source))
    try:
        program = compile_cel(text)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"not a condition: {error_sentence(error)}") from error
    return Condition(source, program, tuple(writer.slots.values()), tuple(writer.sweeps), writer.regexes)


class _Room:
    """Measures the input of a condition: bytes and values in total, and of each variable."""

    __slots__ = ("bytes", "counts", "sizes")

    def __init__(self) -> None:
        self.bytes = 0
        self.counts: dict[str, int] = {}
        self.sizes: dict[str, int] = {}

    def takes(self, variable: str, value: object) -> bool:
        """Count `value`; return whether it still fits."""
        if isinstance(value, Mapping | list):
            size, count = _measure(value)
        else:
            size, count = _width(value), 1
        self.sizes[variable], self.counts[variable] = size, count
        self.bytes += size
        return self.bytes <= MAX_BYTES


def _match_cost(regexes: int, size: int) -> int:
    """Return the cost of matching regular expressions of that total size on strings of `size` bytes."""
    return _REGEX + regexes * _REGEX_PLACE + (regexes * size >> 11)


def _measure(value: Mapping[str, object] | list[object]) -> tuple[int, int]:
    """Return bytes and values of a JSON value, without recursion; over the limit if it is too deep."""
    size = count = 0
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                size += sum(map(_width, one))
                below += one.values()
            elif isinstance(one, list):
                below += one
            else:
                size += _width(one)
            size += 2
        count += len(level)
        if not below or size > MAX_BYTES:
            return size, count
        level = below
    return MAX_BYTES + 1, count


def _width(value: object) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))
    return 4
