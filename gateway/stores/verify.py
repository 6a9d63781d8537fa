"""Verifies a record: each line in its place, unaltered, as the signed heads prove."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep
from typing import BinaryIO, Final

from gateway.model import Json
from gateway.stores.heads import EVERY, head_problem, is_head
from gateway.stores.lines import NO_HASH, ChainLink, fields_of, is_beginning, raw_lines, read_link
from gateway.stores.segments import pin_files

MOST = 100
"""Problems that are listed; after the first, nearly all are consequences."""

SETTLE: Final = 0.5
"""Seconds within which a running gateway has completed a line that a reader sees in part."""

LONGEST_UNSIGNED = 3 * EVERY
"""Seconds between the first and the last line behind the last head that are normal; heads are written every ten."""

_NOT_DECLARED: Final = (
    "no head here declares their deletion by retention: a copy that is behind receives that head later, with the "
    "lines that it lacks; verify it together with its journal"
)


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line of a file or a database; `place` names it for a person, `raw` is None for one that has no end.

    `beside` is what is wrong with the columns that a database has beside the line. `cut_off`: it has no end either, but
    is the last one of the journal, and `raw` is what there is of it.
    """

    place: str
    raw: bytes | None
    beside: str | None = None
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class LineProblem:
    """A problem of a line."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place} {self.message}"


@dataclass(slots=True)
class Verdict:
    """The result for one chain.

    `head` is the number of the last valid head, at `head_place`; `tail` counts the unproven lines behind it, and
    `deleted` those whose values retention deleted. `beside` are other journals that its heads list. `last_place`,
    `last_hash` and `last_time` are of the last readable line. `cut_off` is the place of a last line of which only the
    beginning was written. `doubts` are what one copy alone cannot decide, as long as it is behind.
    """

    chain: str = ""
    lines: int = 0
    heads: int = 0
    head: int = 0
    head_place: str = ""
    tail: int = 0
    tail_seconds: float = 0.0
    last_place: str = ""
    last_hash: str = ""
    last_time: float = 0.0
    deleted: int = 0
    writers: int = 0
    beside: frozenset[str] = frozenset()
    cut_off: str | None = None
    problems: list[LineProblem] = field(default_factory=list)
    doubts: list[LineProblem] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """True if there are no problems."""
        return not self.problems


class Check:
    """Verifies the lines of one chain, oldest first.

    `trusted_keys` are the public keys that may sign; None permits any.
    `in_order`: each key was replaced by the next one, and is invalid afterwards. `begins_at` is the number of the first
    head if older files were archived. `reaches` are hashes of lines that must exist.
    """

    def __init__(
        self,
        trusted_keys: Sequence[str] | None = None,
        begins_at: int | None = None,
        *,
        in_order: bool = False,
        reaches: Iterable[str] = (),
    ) -> None:
        self.verdict = Verdict()
        self.unreached = set(reaches)
        self._in_order = in_order
        self._key = 0
        self._begins_at = begins_at
        self._trusted_keys = trusted_keys
        self._before: ChainLink | None = None
        self._broken = False
        self._tail_began: float | None = 0.0
        self._number = 0
        self.retained = 0.0
        """Until when retention deleted values, as the signed heads say."""
        self._blank_times = array("d")
        self._blank_places: list[str] = []

    def take(self, line: FoundLine) -> None:
        """Check one line."""
        if line.cut_off and self._is_cut_off(line):
            return
        self.verdict.lines += 1
        self.verdict.tail += 1
        if line.raw is None:
            self._say(line, "is torn: it has no end")
            return
        try:
            link = read_link(line.raw)
        except ValueError as error:
            self._say(line, f"{error}, nor the beginning of the next one" if line.cut_off else str(error))
            self._broken = True
            return
        self.unreached.discard(link.hash)
        self._follows(line, link)
        if line.beside is not None:
            self._say(line, line.beside)
        if link.phase == "note":
            self._note(line, link)
        elif link.values is None:
            self._blank(line, link)
        if self._before is None or self._before.writer != link.writer:
            self.verdict.writers += 1
            if not is_head(link) and self._before is not None:
                self._say(line, f"begins the writer {link.writer}, and is not signed")
        self._before, self._broken = link, False
        self.verdict.last_place, self.verdict.last_hash, self.verdict.last_time = line.place, link.hash, link.time
        if self.verdict.tail and self._tail_began is None:
            self._tail_began = link.time  # not the head's: nothing is signed while nothing is written
        self.verdict.tail_seconds = max(0.0, link.time - (self._tail_began or 0.0)) if self.verdict.tail else 0.0

    def end(self, known_head: int = 0, retained: float | None = None) -> Verdict:
        """Return the verdict; `known_head` is the number of a head that is known from elsewhere.

        `retained` is that of the same chain in a complete copy: a copy that is behind has lines without values before
        it has the head that declares their deletion.
        """
        verdict = self.verdict
        until = max(self.retained, retained or 0.0)
        for time, place in zip(self._blank_times, self._blank_places, strict=True):
            if time >= until:
                if retained is None:
                    verdict.doubts.append(LineProblem(place, f"lost its values, and {_NOT_DECLARED}"))
                else:
                    self._say(FoundLine(place, b""), "lost its values, and no retention deleted them")
                break
        if verdict.head < known_head and not verdict.problems:
            text = f"is head {verdict.head}, the last one, and head {known_head} is known: lines after it are missing"
            self._say(FoundLine(verdict.head_place, b""), text)
        elif verdict.tail and verdict.tail_seconds > LONGEST_UNSIGNED and not verdict.problems:
            text = f"is the last head, and lines of {verdict.tail_seconds:.0f} s follow it: heads were taken away"
            self._say(FoundLine(verdict.head_place or "nothing", b""), text)
        return verdict

    def _is_cut_off(self, line: FoundLine) -> bool:
        """Return whether a last line without end is the beginning of a line; a whole one lacks only its newline."""
        raw = line.raw or b""
        with suppress(ValueError):
            read_link(raw)
            return False
        if not is_beginning(raw, self._before):
            return False
        self.verdict.cut_off = line.place
        return True

    def _follows(self, line: FoundLine, link: ChainLink) -> None:
        before = self._before
        if before is None:
            if link.seq != 1 or link.prev != NO_HASH:
                self._begins_later(line, link)
            return
        if self._broken:
            return  # an altered line between them is reported already
        seq = before.seq + 1 if before.writer == link.writer else 1
        if link.seq > seq:
            self._say(line, f"has the number {link.seq} instead of {seq}: {link.seq - seq} before it are missing")
        elif link.seq < seq:
            self._say(line, f"has the number {link.seq} instead of {seq}: it was inserted or moved")
        elif link.prev != before.hash:
            what = "the line before it was replaced, or lines were inserted or taken away"
            self._say(line, f"does not continue the line before it: {what}")

    def _begins_later(self, line: FoundLine, link: ChainLink) -> None:
        number = fields_of(link).get("head") if is_head(link) else None
        if number is None:
            self._say(line, "is not the first line of a journal: lines before it are missing")
        elif number != self._begins_at:
            self._say(line, f"is head {number}: what was written before it is missing")

    def _note(self, line: FoundLine, link: ChainLink) -> None:
        if not is_head(link):
            self._say(line, "is a head without signature")
            return
        problem = head_problem(link, self._trusted_keys)
        if problem is not None:
            between = f" (the lines after head {self.verdict.head} are not proven)" if self.verdict.head else ""
            self._say(line, problem + between)
            return
        fields = fields_of(link)
        self._check_replaced(line, fields.get("key"))
        verdict = self.verdict
        number, chain, before = fields.get("head"), fields.get("chain"), fields.get("deleted_before")
        number = number if isinstance(number, int) else 0
        if self._number and number != self._number + 1:
            self._say(line, f"is head {number} instead of {self._number + 1}")
        self._number = number
        if not verdict.chain:
            verdict.chain = str(chain)
        elif chain != verdict.chain:
            self._say(line, f"is of another journal, {chain}")
        if isinstance(before, int | float):
            self.retained = max(self.retained, before)
        beside = fields.get("beside")
        if isinstance(beside, list):
            verdict.beside |= {one for one in beside if isinstance(one, str)}
        verdict.heads += 1
        if not verdict.problems:
            verdict.head, verdict.head_place = number, line.place
            verdict.tail = 0
            self._tail_began = None

    def _check_replaced(self, line: FoundLine, key: Json) -> None:
        """Check that a replaced key signs no more: it may have been stolen or broken."""
        if self._trusted_keys is None or not self._in_order or not isinstance(key, str):
            return
        last = len(self._trusted_keys) - 1 - [*reversed(self._trusted_keys)].index(key)
        if last < self._key:
            self._say(line, f"is signed with the key {key}, which another one had replaced before")
        self._key = max(self._key, self._trusted_keys.index(key))

    def missing_end(self, why: str = "") -> None:
        """Report that lines behind the last one are missing, as known from elsewhere."""
        if self._before is None:
            self._say(FoundLine("nothing", b""), "is there any more: all its lines are missing")
        else:
            place = f"number {self._before.seq} of writer {self._before.writer}"
            self._say(FoundLine(place, b""), f"is the last line, and lines after it are missing{why}")

    def _blank(self, line: FoundLine, link: ChainLink) -> None:
        self.verdict.deleted += 1
        if not self._blank_times or link.time > self._blank_times[-1]:
            self._blank_times.append(link.time)
            self._blank_places.append(line.place)

    def _say(self, line: FoundLine, message: str) -> None:
        if len(self.verdict.problems) < MOST:
            self.verdict.problems.append(LineProblem(line.place, message))


def verify(path: Path, trusted_keys: Sequence[str] | None = None) -> list[str]:
    """Return the problems of a journal, each with its file and line number."""
    return [str(problem) for problem in verify_chain(found_in(path), trusted_keys).problems]


def verify_chain(
    lines: Iterable[FoundLine],
    trusted_keys: Sequence[str] | None = None,
    known_head: int = 0,
    begins_at: int | None = None,
) -> Verdict:
    """Return the verdict on the lines of one chain."""
    check = Check(trusted_keys, begins_at)
    for line in lines:
        check.take(line)
    return check.end(known_head, check.retained)


def found_in(path: Path) -> Iterator[FoundLine]:
    """Yield every line of the files of a journal, oldest first.

    A killed gateway, or a full disk, leaves the beginning of a line at the end of the last file, and of no other.
    """
    with pin_files(path) as segments:
        for segment in segments:
            with segment.open() as file:
                number, end = 0, 0
                for offset, raw in raw_lines(file):
                    number, end = number + 1, offset
                    yield FoundLine(f"{segment.path.name}:{number}", raw)
                *whole, rest = _rest(file, end).split(b"\n")
                for raw in whole:
                    number += 1
                    yield FoundLine(f"{segment.path.name}:{number}", raw)
                if rest:
                    last = segment is segments[-1]
                    yield FoundLine(f"{segment.path.name}:{number + 1}", rest if last else None, cut_off=last)


def _rest(file: BinaryIO, end: int) -> bytes:
    """Return what follows the last whole line, which ends at `end`, unless a running gateway is still writing it."""
    rest = b""
    for pause in (0.0, SETTLE):
        sleep(pause)
        file.seek(end)
        before, rest = rest, file.read()
        if not rest or rest.endswith(b"\n"):
            return b""
    return rest if rest == before else b""
