"""Responses of every kind among llhttp's samples, and what llhttp 9.3, aiohttp's client and the gateway's make of them.

`llhttp` is what the parser of Node.js says without its lenient flags; it is written down here, the other two are run.
aiohttp's client is llhttp with most of these flags, so it takes more. Each difference has its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.backends.parsers import Outcome

TAKEN: Final = (200, b"ok")
REFUSED: Final = None
UNCHUNKED: Final = (200, b"2\r\nok\r\n0\r\n\r\n")
"""Chunks that are read as the body itself, up to the end of the connection."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The bytes of one connection, which ends after them, and the outcomes; `why` is the reason if they differ."""

    sent: bytes
    ours: Outcome
    llhttp: Outcome
    aiohttp: Outcome
    why: str = ""


def same(outcome: Outcome, *sent: bytes) -> list[Sample]:
    """Samples on which all three agree."""
    return [Sample(one, outcome, outcome, outcome) for one in sent]


def differ(why: str, ours: Outcome, llhttp: Outcome, aiohttp: Outcome, *sent: bytes) -> list[Sample]:
    """Samples on which they do not."""
    return [Sample(one, ours, llhttp, aiohttp, why) for one in sent]


def status_lines(*lines: bytes) -> list[bytes]:
    """Responses that begin with these lines."""
    return [line + b"\r\nContent-Length: 2\r\n\r\nok" for line in lines]


def fields(*lines: bytes) -> list[bytes]:
    """Responses with these lines before the content length."""
    return [b"HTTP/1.1 200 OK\r\n" + line + b"\r\nContent-Length: 2\r\n\r\nok" for line in lines]


def lengths(*lines: bytes) -> list[bytes]:
    """Responses with these lines, and two bytes behind the head."""
    return [b"HTTP/1.1 200 OK\r\n" + line + b"\r\n\r\nok" for line in lines]


def codings(*lines: bytes) -> list[bytes]:
    """Responses with these lines, and a body of one chunk."""
    return [b"HTTP/1.1 200 OK\r\n" + line + b"\r\n\r\n2\r\nok\r\n0\r\n\r\n" for line in lines]


def chunks(*bodies: bytes) -> list[bytes]:
    """Responses with these chunked bodies."""
    return [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body for body in bodies]


VERSION: Final = "A minor version above 1 is read as 1.1 (RFC 9110 2.5); no other major version is spoken."
BEFORE: Final = (
    "Empty lines before a response are those of a confused server; only a server may skip them (RFC 9112 2.2)."
)
PHRASE: Final = "A reason phrase has no control characters (RFC 9112 4); aiohttp's is dropped later."
IGNORED: Final = "A line that is no field is dropped, as in browsers, if it cannot affect the framing."
COLON: Final = "A proxy removes spaces between a name and its colon (RFC 9112 5.1)."
FOLDED: Final = "A folded line is joined by a space (RFC 9112 5.2)."
LF: Final = "A line of a head may end with LF alone (RFC 9112 2.2), as those of old servers do."
TWICE: Final = "The same content length twice is one (RFC 9112 6.3)."
SPACE: Final = "Spaces and tabs around a value do not belong to it (RFC 9110 5.5)."
CODING: Final = "A transfer coding other than chunked is not decoded here, and a list could be read in two ways."
IDENTITY: Final = "`identity` and an empty list are no coding (RFC 2616 3.6); the connection is not reused."
OLD: Final = "Chunks in HTTP/1.0 are faulty framing (RFC 9112 6.1)."
EXTENSION: Final = "A chunk's extensions, and spaces before them, are not parsed (RFC 9112 7.1.1)."
CHUNK_LF: Final = "Within chunks a line ends with CRLF: the grammar has no other (RFC 9112 7.1)."
TRAILER: Final = "Trailers are dropped unread."
UPGRADE: Final = "No request asks for another protocol."
BLANK: Final = "A line of a space is not the empty one that ends a head (RFC 9112 2.2)."
BARE_CR: Final = "A CR alone ends no line."
LIMIT: Final = "Our longest field is as long as the head, aiohttp's 8190 bytes; llhttp leaves bounds to its user."

SAMPLES: Final = [
    *differ(LF, (200, b"\r\nbody"), REFUSED, (200, b"\r\nbody"), b"HTTP/1.1 200 OK\r\nX-A: 1\n\n\r\nbody"),
    *differ(BLANK, TAKEN, REFUSED, (200, b"Content-Length: 2\r\n\r\nok"), *fields(b" ")),
    *same(
        TAKEN,
        *status_lines(
            b"HTTP/1.1 200 OK",
            b"HTTP/1.1 200 ",
            b"HTTP/1.1 200",
            b"HTTP/1.1 200  two",
            b"HTTP/1.0 200 OK",
            b"HTTP/1.1 200 Ori\xc3\xab",
            b"HTTP/1.1 200 Ori\xeb",
            b"HTTP/1.1 200 a\tb",
        ),
    ),
    *same(
        REFUSED,
        *status_lines(
            b"HTTP/1.1\t200 OK",
            b"HTTP/1.1  200 OK",
            b"HTTP/1.1 20 OK",
            b"HTTP/1.1 2000 OK",
            b"HTTP/1.1 200OK",
            b"HTTP/01.1 200 OK",
            b"HTTP/11.1 200 OK",
            b"HTTP/1.01 200 OK",
            b"HTTP/5.6 200 OK",
            b"HTTP/2 200 OK",
            b"HTP/1.1 200 OK",
            b"HTTPER/1.1 200 OK",
            b"http/1.1 200 OK",
            b" HTTP/1.1 200 OK",
            b"HTTP/1.1 -20 OK",
            b"HTTP/1.1 099 OK",
            b"HTTP/1.1 200 a\rb",
            b"HTTP/1.1 200 OK\r",
            b"",
        ),
    ),
    *differ(
        VERSION,
        REFUSED,
        TAKEN,
        TAKEN,
        *status_lines(
            b"HTTP/0.9 200 OK",
            b"HTTP/2.0 200 OK",
            b"RTSP/1.1 200 OK",
            b"ICE/1.1 200 OK",
        ),
    ),
    *differ(
        VERSION,
        TAKEN,
        REFUSED,
        REFUSED,
        *status_lines(
            b"HTTP/1.2 200 OK",
        ),
    ),
    *differ(
        BEFORE,
        REFUSED,
        TAKEN,
        TAKEN,
        *status_lines(
            b"\r\nHTTP/1.1 200 OK",
            b"\rHTTP/1.1 200 OK",
            b"\nHTTP/1.1 200 OK",
        ),
    ),
    *differ(
        PHRASE,
        REFUSED,
        TAKEN,
        TAKEN,
        *status_lines(
            b"HTTP/1.1 200 a\x01b",
            b"HTTP/1.1 200 a\x00b",
        ),
    ),
    *same(
        (600, b"ok"),
        *status_lines(
            b"HTTP/1.1 600 OK",
        ),
    ),
    *same(
        (999, b"ok"),
        *status_lines(
            b"HTTP/1.1 999 OK",
        ),
    ),
    *same(
        TAKEN,
        *fields(
            b"X-A:1",
            b"X-A:\t1\t ",
            b"X-A:",
            b"x_a: 1",
            b"X-$a: 1",
            b".x: 1",
            b"X-A: \xe9",
            b"\r\n".join([b"X: 1"] * 127),
            b"Content-Length-X: 0",
        ),
    ),
    *differ(
        IGNORED,
        TAKEN,
        REFUSED,
        REFUSED,
        *fields(
            b"X A: 1",
            b": 1",
            b"no colon",
            b"X\xe9: 1",
            b"X@A: 1",
        ),
    ),
    *differ(
        COLON,
        TAKEN,
        REFUSED,
        REFUSED,
        *fields(
            b"X-A : 1",
        ),
    ),
    *differ(
        IGNORED,
        TAKEN,
        REFUSED,
        TAKEN,
        *fields(
            b" X-A: 1",
            b"X-A: a\x01b",
            b"X-A: a\x7fb",
        ),
    ),
    *differ(
        FOLDED,
        TAKEN,
        REFUSED,
        TAKEN,
        *fields(
            b"X-A: 1\r\n  2",
            b"X-A: 1\r\n\t",
        ),
    ),
    *same(
        REFUSED,
        *fields(
            b"X-A: a\x00b",
            b"X-A: a\rb",
            b"X-A: 1\rX-B: 2",
            b"X-A: 1\r",
        ),
    ),
    *differ(
        LIMIT,
        TAKEN,
        TAKEN,
        REFUSED,
        *fields(
            b"X-A: " + b"a" * 9000,
        ),
    ),
    *differ(
        LIMIT,
        REFUSED,
        TAKEN,
        REFUSED,
        *fields(
            b"X-A: " + b"a" * 70000,
            b"\r\n".join([b"X: 1"] * 128),
        ),
    ),
    *differ(
        LF,
        (200, b"Content-Length: 2\r\n\r\nok"),
        REFUSED,
        (200, b"Content-Length: 2\r\n\r\nok"),
        *fields(
            b"X-A: 1\n",
        ),
    ),
    *same(
        TAKEN,
        *lengths(
            b"Content-Length:2",
            b"Content-Length:  2  ",
            b"Content-Length:002",
            b"CONTENT-LENGTH: 2",
            b"Content_Length: 2",
            b"Transfer-Encoding:\r\nContent-Length: 2",
            b"Transfer-Encoding: identity",
        ),
    ),
    *differ(
        SPACE,
        TAKEN,
        REFUSED,
        TAKEN,
        *lengths(
            b"Content-Length:\t2\t",
        ),
    ),
    *same(
        REFUSED,
        *lengths(
            b"Content-Length: +2",
            b"Content-Length: -2",
            b"Content-Length: 0x2",
            b"Content-Length: 2.0",
            b"Content-Length: 2 0",
            b"Content-Length: 2,3",
            b"Content-Length: 2,",
            b"Content-Length:",
            b"Content-Length: 18446744073709551616",
            b"Content-Length: 99999999999999999999999",
            b"Content-Length: 2\r\nContent-Length: 3",
            b"Content-Length: 0\r\nContent-Length: 2",
            b"Content-Length: 2\x00",
            b"Content-Length: \x0b2",
            b"Content-Length: 3",
            b"Content-Length: \xb2",
            b"Content Length: 2",
            b"Content-Length\x00: 2",
            b"Transfer-Encoding: gzip\r\nContent-Length: 2",
        ),
    ),
    *differ(
        TWICE,
        TAKEN,
        REFUSED,
        REFUSED,
        *lengths(
            b"Content-Length: 2,2",
            b"Content-Length: 2, 2",
            b"Content-Length: 2\r\nContent-Length: 2",
        ),
    ),
    *differ(
        FOLDED,
        TAKEN,
        REFUSED,
        TAKEN,
        *lengths(
            b"Content-Length:\r\n 2",
        ),
    ),
    *differ(
        COLON,
        TAKEN,
        REFUSED,
        TAKEN,
        *lengths(
            b"Content-Length : 2",
        ),
    ),
    *differ(
        COLON,
        TAKEN,
        REFUSED,
        REFUSED,
        *lengths(
            b"Content-Length\t: 2",
        ),
    ),
    *same(
        TAKEN,
        *codings(
            b"Transfer-Encoding:chunked",
            b"Transfer-Encoding: CHUNKED",
        ),
    ),
    *differ(
        SPACE,
        TAKEN,
        UNCHUNKED,
        UNCHUNKED,
        *codings(
            b"Transfer-Encoding:  chunked \t",
        ),
    ),
    *differ(
        CODING,
        REFUSED,
        TAKEN,
        TAKEN,
        *codings(
            b"Transfer-Encoding: identity, chunked",
            b"Transfer-Encoding: gzip, chunked",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
            b"Transfer-Encoding: chunked, chunked",
            b"Transfer-Encoding: ,chunked",
        ),
    ),
    *differ(
        CODING,
        REFUSED,
        UNCHUNKED,
        UNCHUNKED,
        *codings(
            b"Transfer-Encoding: chunked, gzip",
            b"Transfer-Encoding: chunked, identity",
            b"Transfer-Encoding: chunkedchunked",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            b"Transfer-Encoding: chunked;q=1",
            b"Transfer-Encoding: xchunked",
            b'Transfer-Encoding: "chunked"',
            b"Transfer-Encoding: chunked,",
        ),
    ),
    *differ(
        FOLDED,
        REFUSED,
        REFUSED,
        UNCHUNKED,
        *codings(
            b"Transfer-Encoding: chunked\r\n  abc",
        ),
    ),
    *same(
        REFUSED,
        *codings(
            b"Transfer-Encoding: chunked\r\nContent-Length: 2",
            b"Transfer-Encoding: chunked\x00",
            b"Transfer Encoding: chunked",
        ),
    ),
    *differ(
        CODING,
        REFUSED,
        REFUSED,
        UNCHUNKED,
        *codings(
            b"Transfer-Encoding:\x0bchunked",
        ),
    ),
    *differ(
        COLON,
        TAKEN,
        REFUSED,
        TAKEN,
        *codings(
            b"Transfer-Encoding : chunked",
        ),
    ),
    *same(
        UNCHUNKED,
        *codings(
            b"Transfer_Encoding: chunked",
        ),
    ),
    *differ(
        IDENTITY,
        TAKEN,
        REFUSED,
        REFUSED,
        *lengths(
            b"Transfer-Encoding: identity\r\nContent-Length: 2",
            b"Content-Length: 2\r\nTransfer-Encoding: identity",
        ),
    ),
    *differ(
        CODING,
        REFUSED,
        TAKEN,
        TAKEN,
        *lengths(
            b"Transfer-Encoding: gzip",
        ),
    ),
    *differ(
        OLD,
        REFUSED,
        TAKEN,
        TAKEN,
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ),
    *same(
        TAKEN,
        *chunks(
            b"2\r\nok\r\n0\r\n\r\n",
            b"002\r\nok\r\n0\r\n\r\n",
            b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
            b"2;a\r\nok\r\n0\r\n\r\n",
            b'2;a=b;c="d;e"\r\nok\r\n0\r\n\r\n',
            b"2\r\nok\r\n0\r\nA: b\r\n\r\n",
            b"2\r\nok\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"2\r\nok\r\n0;a=b\r\n\r\n",
            b"2\r\nok\r\n000\r\n\r\n",
        ),
    ),
    *differ(
        EXTENSION,
        TAKEN,
        REFUSED,
        REFUSED,
        *chunks(
            b"2;\r\nok\r\n0\r\n\r\n",
            b'2;a="b\r\nok\r\n0\r\n\r\n',
        ),
    ),
    *differ(
        EXTENSION,
        TAKEN,
        REFUSED,
        TAKEN,
        *chunks(
            b"2 \r\nok\r\n0\r\n\r\n",
            b"2\t\r\nok\r\n0\r\n\r\n",
            b"2 ;a\r\nok\r\n0\r\n\r\n",
        ),
    ),
    *same(
        REFUSED,
        *chunks(
            b"2 x\r\nok\r\n0\r\n\r\n",
            b"2;a\x01\r\nok\r\n0\r\n\r\n",
            b"2;a\r\r\nok\r\n0\r\n\r\n",
            b"g\r\nok\r\n0\r\n\r\n",
            b"\r\nok\r\n0\r\n\r\n",
            b" 2\r\nok\r\n0\r\n\r\n",
            b"-2\r\nok\r\n0\r\n\r\n",
            b"+2\r\nok\r\n0\r\n\r\n",
            b"0x2\r\nok\r\n0\r\n\r\n",
            b"2\nok\n0\n\n",
            b"2\nok\r\n0\r\n\r\n",
            b"2\r\nokx\r\n0\r\n\r\n",
            b"2\r\nok0\r\n\r\n",
            b"fffffffffffffffff\r\nok\r\n0\r\n\r\n",
            b"2\r\nok\r\n0\n\n",
            b"2\r\nok\r\n0\r\n\rX",
        ),
    ),
    *differ(
        CHUNK_LF,
        REFUSED,
        REFUSED,
        TAKEN,
        *chunks(
            b"2;a\nok\r\n0\r\n\r\n",
            b"2\r\nok\n0\r\n\r\n",
            b"2\r\nok\r\n0\r\nA: b\n\n",
        ),
    ),
    *differ(
        TRAILER,
        TAKEN,
        REFUSED,
        REFUSED,
        *chunks(
            b"2\r\nok\r\n0\r\nno colon\r\n\r\n",
            b"2\r\nok\r\n0\r\nContent-Length: 5\r\n\r\n",
            b"2\r\nok\r\n0\r\n A\r\n\r\n",
            b"2\r\nok\r\n0\r\nA: b\rC: d\r\n\r\n",
        ),
    ),
    *differ(
        TRAILER,
        TAKEN,
        REFUSED,
        TAKEN,
        *chunks(
            b"2\r\nok\r\n0\r\nA: \x00\r\n\r\n",
        ),
    ),
    *same(
        (200, b"0123456789"),
        *chunks(
            b"A\r\n0123456789\r\n0\r\n\r\n",
            b"a\r\n0123456789\r\n0\r\n\r\n",
        ),
    ),
    *same(
        (204, b""),
        b"HTTP/1.1 204 N\r\n\r\n",
        b"HTTP/1.1 204 N\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 204 N\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 204 N\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate",
        b"HTTP/1.0 204 N\r\nConnection: keep-alive\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate",
    ),
    *same(
        (304, b""),
        b"HTTP/1.1 304 N\r\nContent-Length: 10\r\n\r\n",
        b"HTTP/1.1 304 N\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate",
        b"HTTP/1.1 304 N\r\nContent-Length: 10\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate",
    ),
    *same(
        (205, b""),
        b"HTTP/1.1 205 R\r\nContent-Length: 0\r\n\r\n",
    ),
    *same(
        TAKEN,
        b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 103 E\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 100 C\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 100 C\r\nTransfer-Encoding: chunked\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nProxy-Connection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nConnection: CLOSE, x\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    ),
    *same(
        (400, b"ok"),
        b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 400 B\r\nContent-Length: 2\r\n\r\nok",
    ),
    *same(
        REFUSED,
        b"HTTP/1.1 102 P\r\n\r\n",
        b"HTTP/1.1 200 OK\rContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok",
        b"",
    ),
    *differ(
        UPGRADE,
        REFUSED,
        (101, b""),
        (101, b""),
        b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nbodyproto",
        b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nproto",
        b"HTTP/1.1 101 S\r\n\r\n",
    ),
    *same(
        (200, b"body"),
        b"HTTP/1.1 200 OK\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n",
    ),
    *same(
        (200, b""),
        b"HTTP/1.1 200 OK\r\n\r\n",
    ),
    *same(
        (404, b""),
        b"HTTP/1.1 404 N\r\n\r\n",
    ),
    *same(
        (200, b"HTTP/1.1 200 OK"),
        b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK",
    ),
    *same(
        (200, b"HTTP/1.0 200 OK"),
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nHTTP/1.0 200 OK",
    ),
    *same(
        (200, b"to the end"),
        b"HTTP/1.0 200 OK\r\n\r\nto the end",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end",
    ),
    *differ(
        LF,
        TAKEN,
        REFUSED,
        TAKEN,
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok",
    ),
    *differ(
        LF,
        (200, b"body\n"),
        REFUSED,
        (200, b"body\n"),
        b"HTTP/1.1 200 OK\nX-A: 1\n\nbody\n",
    ),
    *differ(
        BARE_CR,
        REFUSED,
        (200, b"Evil"),
        REFUSED,
        b"HTTP/1.1 200 OK\r\rContent-Length: 4\r\n\r\nEvil",
    ),
    *same(
        (301, b""),
        b"HTTP/1.1 301 M\r\nLocation: /x\r\nPragma: \r\nContent-Length: 0\r\n\r\n",
    ),
]
