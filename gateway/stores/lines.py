"""The line format of the journal: serializes records into a hash chain, and parses them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import BinaryIO, Final

from msgspec import Struct

from gateway.jsontext.reading import parse_json
from gateway.jsontext.sizes import InvalidJson
from gateway.jsontext.writing import compact_ascii, quote
from gateway.model import AuditRecord, Json

REDACTED = "[redacted]"
_NESTED = (dict, list)

_STEP = re.compile(
    r"(?P<deep>\.\.)(?P<below>[A-Za-z_][\w-]*|\*)|\.(?P<name>[A-Za-z_][\w-]*|\*)|\[(?P<any>\*)\]|\['(?P<quoted>[^']+)'\]"
)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step into the member `name`, or into every member and item if None; `deep` means at any depth."""

    name: str | None
    deep: bool


class Redaction:
    """Replaces the values at `paths` in the fields of a record; `$` is the fields.

    Of JSONPath (RFC 9535) it supports `$.a.b`, `$['a']`, `$..name`, `$.*` and `$.items[*]`. Raises ValueError for
    others.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self._paths = tuple(_steps(path) for path in paths)
        self.any = bool(self._paths)

    def __call__(self, fields: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return the fields with those values replaced; the argument is not modified."""
        for steps in self._paths:
            first = steps[0].name
            if first is not None and not steps[0].deep:
                if first in fields:
                    fields = {**fields, first: _redact(fields[first], steps[1:])}
                continue
            fields = {
                key: _member(key, value, steps) if first in (None, key) or isinstance(value, _NESTED) else value
                for key, value in fields.items()
            }
        return fields


def _steps(path: str) -> tuple[_Step, ...]:
    steps: list[_Step] = []
    at = 1
    while at < len(path) and path.startswith("$"):
        match = _STEP.match(path, at)
        if match is None:
            break
        name = match["below"] or match["name"] or match["any"] or match["quoted"]
        steps.append(_Step(None if name == "*" and not match["quoted"] else name, match["deep"] is not None))
        at = match.end()
    if not steps or at != len(path):
        raise ValueError(f"{path!r} is not a path such as $.password, $..token or $.items[*].name")
    return tuple(steps)


def _redact(value: Json, steps: tuple[_Step, ...]) -> Json:
    match value:
        case _ if not steps:
            return REDACTED
        case dict():
            return {key: _member(key, inner, steps) for key, inner in value.items()}
        case list():
            return [_member(None, inner, steps) for inner in value]
        case _:
            return value


def _member(key: str | None, value: Json, steps: tuple[_Step, ...]) -> Json:
    """Redact a member, or an item of a list, whose `key` is None."""
    step = steps[0]
    if step.deep:
        value = _redact(value, steps)
    return _redact(value, steps[1:]) if step.name is None or step.name == key else value


NOTE = "note"
"""The phase of lines about the journal itself; `intent` and `outcome` belong to exchanges and tool calls."""

NO_HASH = "0" * 64
"""The previous hash in the first line of a chain."""

LINE_START = b'{"v":1,"writer":"'
"""The beginning of every line."""

_WRITER_LENGTH: Final = 16
"""Characters of the id of a writer, in hexadecimal."""

_BLOCK = 256 * 1024
_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_HEAD: Final = re.compile(
    rb'(?P<head>\{"v":1,"writer":"(?P<writer>[^"\\]*)","seq":(?P<seq>[0-9]{1,18}),"prev":"(?P<prev>[0-9a-f]{64})",'
    rb'"id":(?P<id>' + _TEXT + rb'),"phase":(?P<phase>' + _TEXT + rb'),"time":(?P<time>[0-9.e+-]{1,32}),'
    rb'"values":"(?P<values>[0-9a-f]{64})"),"hash":"(?P<hash>[0-9a-f]{64})"'
)
_SALT_START: Final = b',"salt":"'
SALT_BYTES: Final = 16
"""Random bytes in each line; as hex they are its `salt`."""

_SALT_LENGTH: Final = 2 * SALT_BYTES
_VALUES_START: Final = len(_SALT_START) + _SALT_LENGTH + len(b'","fields":')


class Line(Struct, frozen=True):
    """One line: number `seq` of `writer`, with the hash of the previous line. `text` is the line itself, as JSON.

    `kept` is False if its values were deleted; the record has no fields then.
    """

    writer: str
    seq: int
    prev: str
    hash: str
    record: AuditRecord
    text: str
    kept: bool = True


class ChainLink(Struct, frozen=True):
    """A line with valid hashes, as the chain needs it; `values` are its fields' bytes, None if deleted."""

    writer: str
    seq: int
    prev: str
    hash: str
    id: str
    phase: str
    time: float
    values: bytes | None


def chain_line(writer: str, seq: int, prev: str, record: AuditRecord, salt: str) -> tuple[bytes, str]:
    """Return a record's line, with its newline, and `hash`. Raises ValueError for values that JSON cannot represent.

    `hash` is SHA-256 over the line up to it. In there, `values` is SHA-256 over `salt` and the JSON of `fields`, which
    follow it: if these two are deleted, the chain still holds, and their content cannot be guessed from it.
    """
    try:
        fields = compact_ascii(record.fields if type(record.fields) is dict else dict(record.fields))
        time = repr(record.time) if isfinite(record.time) else compact_ascii(record.time)  # the first is faster
        words = f'"id":{quote(record.id)},"phase":{quote(record.phase)},"time":{time}'
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    values = hashlib.sha256(f"{salt}{fields}".encode("ascii")).hexdigest()
    head = f'{{"v":1,"writer":"{writer}","seq":{seq},"prev":"{prev}",{words},"values":"{values}"'
    digest = hashlib.sha256(head.encode("ascii")).hexdigest()
    return f'{head},"hash":"{digest}","salt":"{salt}","fields":{fields}}}\n'.encode("ascii"), digest


def read_link(raw: bytes) -> ChainLink:
    """Parse a line (without its newline) as far as the chain needs it, and verify its hashes. Raises ValueError."""
    match = _HEAD.match(raw)
    if match is None:
        raise ValueError("is not a line of a journal")
    head, writer, seq, prev, id, phase, time, values, quote = match.groups()
    digest = hashlib.sha256(head).hexdigest()
    if quote != digest.encode("ascii"):
        raise ValueError("was altered: its hash does not fit")
    return ChainLink(
        writer.decode("ascii"),
        int(seq),
        prev.decode("ascii"),
        digest,
        _word(id),
        _word(phase),
        float(time),
        _values(raw[match.end() :], values),
    )


def is_beginning(raw: bytes, before: ChainLink | None) -> bool:
    """Return whether the bytes, which are no whole line, can be the beginning of the line after `before`.

    A loss of power leaves zeros in the place of bytes that had not reached the disk.
    """
    raw = raw.rstrip(b"\0")
    match = _HEAD.match(raw)
    if match is not None and (hashlib.sha256(match["head"]).hexdigest().encode() != match["hash"] or _is_json(raw)):
        return False
    if before is None:
        return LINE_START.startswith(raw[: len(LINE_START)])
    same = f'{before.writer}","seq":{before.seq + 1},"prev":"{before.hash}",'
    writer = raw[len(LINE_START) : len(LINE_START) + _WRITER_LENGTH].decode("ascii", "replace")
    other = f'{writer}","seq":1,"prev":"{before.hash}",'
    starts = (LINE_START + text.encode() for text in (same, other))
    return any(start.startswith(raw[: len(start)]) for start in starts)


def _is_json(raw: bytes) -> bool:
    try:
        parse_json(raw)
    except InvalidJson:
        return False
    return True


def read_line(raw: bytes) -> Line:
    """Parse a line (without its newline) and verify its hashes. Raises ValueError."""
    try:
        text = raw.decode("ascii")
        link = read_link(raw)
        fields = {} if link.values is None else parse_json(link.values.decode("ascii"))
        if type(fields) is not dict:
            raise TypeError
    except (TypeError, UnicodeDecodeError, InvalidJson) as error:
        raise ValueError("is not a line of a journal") from error
    record = AuditRecord(link.id, link.phase, link.time, fields)
    return Line(link.writer, link.seq, link.prev, link.hash, record, text.rstrip(" "), link.values is not None)


def _word(quote: bytes) -> str:
    """Parse a JSON string."""
    value: str = parse_json(quote) if b"\\" in quote else quote[1:-1].decode("ascii")
    return value


def without_values(raw: bytes) -> bytes | None:
    """Return the line without values and salt, padded with spaces to its length; None if they were deleted before.

    Raises ValueError for an invalid line.
    """
    match = _HEAD.match(raw)
    if match is None:
        raise ValueError("is not a line of a journal")
    if not raw.startswith(_SALT_START, match.end()):
        return None
    return (raw[: match.end()] + b"}").ljust(len(raw))


def fields_of(link: ChainLink) -> Mapping[str, Json]:
    """Return the values of a line; empty if they were deleted. Raises ValueError."""
    fields = parse_json(link.values) if link.values is not None else {}
    if not isinstance(fields, dict):
        raise ValueError("is not a line of a journal")
    return fields


def _values(rest: bytes, commitment: bytes) -> bytes | None:
    """Return the bytes of the fields behind the hash, None if they were deleted. Raises ValueError."""
    if rest.startswith(b"}") and not rest[1:].strip(b" "):
        return None
    values = rest[_VALUES_START:-1]
    if not rest.startswith(_SALT_START) or not rest.endswith(b"}") or not values:
        raise ValueError("is not a line of a journal")
    salt = rest[len(_SALT_START) : len(_SALT_START) + _SALT_LENGTH]
    if rest[len(_SALT_START) + _SALT_LENGTH : _VALUES_START] != b'","fields":':
        raise ValueError("is not a line of a journal")
    if hashlib.sha256(salt + values).hexdigest().encode() != commitment:
        raise ValueError("was altered: its values are others than were written")
    return values


def raw_lines(file: BinaryIO, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield the lines from byte `start`, each with the offset behind it; a last line without newline is omitted."""
    file.seek(start)
    offset = start
    for raw in file:
        if not raw.endswith(b"\n"):
            return
        offset += len(raw)
        yield offset, raw[:-1]


def raw_lines_backwards(descriptor: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines before byte `end`, last first, each with its offset; also bytes behind the last newline.

    The first item is the rest behind the last newline: empty in an intact file.
    """
    rest = b""
    while end > 0:
        start = max(0, end - _BLOCK)
        pieces = (os.pread(descriptor, end - start, start) + rest).split(b"\n")
        offset = start + len(pieces[0])
        rest = pieces[0]
        lines = []
        for piece in pieces[1:]:
            offset += 1
            lines.append((offset, piece))
            offset += len(piece)
        yield from reversed(lines)
        end = start
    yield 0, rest
