"""Conditions in CEL, sandboxed: checked at load, evaluated only on the facts they name, at a bounded cost.

The engine has no step limit and holds the GIL, so the limit is on its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.errors import Reason
from gateway.policy.cel import CelWriter, Slot, Sweep, compiled, told
from gateway.policy.expressions import parse_expression
from gateway.policy.facts import FactSource, Missing, Vocabulary

if TYPE_CHECKING:
    from cel import Program

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
        given: dict[str, object] = {}
        gone: list[tuple[Slot, Missing]] = []
        room = _Room()
        for slot in self.slots:
            value = slot.find(source)
            if isinstance(value, Missing):
                gone.append((slot, value))
            elif room.takes(slot.variable, value):
                given[slot.variable] = value
            else:
                return Failure(f"{slot.shown} is larger than conditions may read", Reason.CONDITION_LIMIT)
        if (self.sweeps or self.regexes) and self._cost(room) > MAX_COST:
            return Failure("it would take too long on a value of that size", Reason.CONDITION_LIMIT)
        return self._run(given, gone)

    def values(self, source: FactSource) -> Iterator[tuple[str, object]]:
        """Yield each fact that the condition names, with its value or `Missing`."""
        for slot in self.slots:
            if not slot.presence:
                yield slot.shown, slot.find(source)

    def reads(self, *path: str) -> bool:
        """Return whether it names a fact at or below `path`."""
        return any(slot.path[: len(path)] == path for slot in self.slots)

    def _run(self, given: Mapping[str, object], gone: list[tuple[Slot, Missing]]) -> Failure | None:
        try:
            result = self.program.execute(dict(given))
        except (ValueError, TypeError, RuntimeError, ArithmeticError, LookupError) as error:
            if gone:
                slot, missing = gone[0]
                return Failure(f"{slot.shown} {missing.why}")
            return Failure(told(error))
        except BaseException as error:
            # A panic of the engine is not an Exception; it denies like every error.
            if type(error).__name__ != "PanicException":
                raise
            return Failure("the engine failed")
        if result is True:
            return None
        return Failure("it is false" if result is False else "its value is neither true nor false")

    def _cost(self, room: _Room) -> int:
        cost = _matched(self.regexes, room.bytes) if self.regexes else 0
        for sweep in self.sweeps:
            items = sum(room.counts.get(name, 0) for name in sweep.over) + 1
            inner = sum(room.counts.get(name, 0) + room.sizes.get(name, 0) // 64 for name in sweep.inner)
            each = 8 + inner + (items if sweep.copies else 0)
            cost += items * each
            if sweep.regexes:
                size = room.bytes if sweep.inner else room.bytes // items
                cost += items * _matched(sweep.regexes, size)
        return cost


def parse_condition(source: str, vocabulary: Vocabulary) -> Condition:
    """Compile the condition in `source`. Raises ValueError with the remedy."""
    writer = CelWriter(vocabulary)
    text = writer.text(parse_expression(source))
    try:
        program = compiled(text)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"not a condition: {told(error)}") from error
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


def _matched(regexes: int, size: int) -> int:
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
