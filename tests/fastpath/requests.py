"""Generated HTTP/1.1 requests, plain and odd, for comparing the fast path with aiohttp; equal for equal seeds."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from random import Random

from tests.mcp.fast_cases import HEAD, META, message

Field = tuple[bytes, bytes]

TRACE = "0af7651916cd43dd8448eb211c80319c"
"""The trace of requests that have one."""


@dataclass
class Draft:
    """A request to be written; fields with the separator and the line end that each line has."""

    method: bytes
    target: bytes
    fields: list[Field]
    body: bytes = b""
    version: bytes = b"HTTP/1.1"
    separator: bytes = b": "
    line_end: bytes = b"\r\n"
    before: bytes = b""
    length: bool = True
    framing: list[Field] = field(default_factory=list)

    def written(self) -> bytes:
        """The bytes."""
        fields = [*self.fields, *self.framing]
        if self.length and not self.framing and (self.body or self.method not in (b"GET", b"HEAD", b"OPTIONS")):
            fields.append((b"content-length", b"%d" % len(self.body)))
        lines = [b" ".join(part for part in (self.method, self.target, self.version) if part)]
        lines += [name + self.separator + value if name else value for name, value in fields]
        return self.before + b"".join(line + self.line_end for line in [*lines, b""]) + self.body

    def chunked(self) -> None:
        """Send the body in chunks."""
        self.framing = [(b"transfer-encoding", b"chunked")]
        self.body = (b"%x\r\n%b\r\n" % (len(self.body), self.body) if self.body else b"") + b"0\r\n\r\n"

    def replace(self, name: bytes, value: bytes | None) -> None:
        """Replace a field, or remove it."""
        self.fields = [one for one in self.fields if one[0].lower() != name]
        if value is not None:
            self.fields.append((name, value))


BROWSER = [
    (b"User-Agent", b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0"),
    (b"Accept", b"*/*"),
    (b"Accept-Language", b"de-CH,de;q=0.9"),
    (b"Accept-Encoding", b"gzip, deflate, br"),
    (b"Sec-Fetch-Site", b"same-origin"),
    (b"Sec-Fetch-Mode", b"cors"),
    (b"Sec-Fetch-Dest", b"empty"),
    (b"Cookie", b"a=b; c=d"),
]
CLIENT = [(b"webmcp-gateway-client", b"1"), (b"accept", b"application/json")]
SITE_TARGETS = [
    *[b"/api/items/%d" % number for number in range(4)],
    *[b"/api/status/%d" % status for status in (201, 204, 205, 302, 304, 404, 500)],
    *[b"/api/denied", b"/elsewhere", b"/", b"/index.html", b"/folder", b"/folder/", b"/api/long", b"/api/stream"],
    *[b"/api/odd", b"/api/broken", b"/favicon.ico", b"/api/items/a;b=c", b"/api/items/a%20b", b"/api/items/%2e%2e"],
    *[
        b"/mcp",
        b"/.well-known/webmcp-gateway/session",
        b"/api/items/../items/1",
        b"/api//items",
        b"/api/items/\xc3\xa9",
    ],
    *[b"/api/only-get", b"/api/small", b"/.hidden", b"/api/none", b"/api/redirect"],
]
MCP_TARGETS = [b"/mcp", b"/mcp/page", b"/mcp/page", b"/mcp/page", b"/mcp/nobody", b"/mcp/", b"/mcp/page/x", b"/mcpx"]


def site_request(random: Random, number: bytes) -> Draft:
    """A request to the site of the app, mostly plain."""
    target = random.choice(SITE_TARGETS) if random.random() < 0.7 else b"/api/items/1"
    method = random.choices(
        [b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS"], [50, 25, 8, 4, 8, 3, 2]
    )[0]
    body = b""
    if method in (b"POST", b"PUT", b"PATCH") or (method == b"DELETE" and random.random() < 0.3):
        body = random.choice([b"", b'{"a": [1, 2.5, "\\u00e9"]}', b"a=b&c=%20", b"\x00\xff" * 9, b"x" * 3000])
    mark = random.choice(
        [b"?n=" + number, b"?n=" + number, b"?n=" + number + b"&q=%C3%A9/?:@", b"?n=" + number + b"&a[]=|"]
    )
    fields = [(b"Host", b"{site}"), *random.choice([BROWSER, CLIENT])]
    if body and random.random() < 0.8:
        fields.append(
            (b"Content-Type", random.choice([b"application/json", b"text/plain", b"application/x-www-form-urlencoded"]))
        )
    return Draft(method, target + mark, list(fields), body)


def mcp_request(random: Random, number: bytes) -> Draft:
    """A call at `/mcp`, mostly plain."""
    target = random.choice(MCP_TARGETS) if random.random() < 0.4 else b"/mcp/page"
    url = random.choice(SITE_TARGETS[:12]).decode() + f"?n={number.decode()}"
    arguments: dict[str, object] = {"url": url, "_view": "proof"}
    if random.random() < 0.1:
        del arguments["_view"]
    if random.random() < 0.3:
        arguments |= {"method": "POST", "body": {"a": [1, "\u00e9"]}}
    params = {"name": "http_request", "arguments": arguments, "_meta": META}
    call: dict[str, object] = {"jsonrpc": "2.0", "id": int(number), "method": "tools/call", "params": params}
    if random.random() < 0.1:
        call["method"] = random.choice(["tools/list", "ping", "nothing"])
    fields = [(name.encode(), value.encode()) for name, value in HEAD.items()]
    draft = Draft(b"POST", target, fields, json.dumps(call).encode())
    draft.replace(b"host", b"{plain}")
    if random.random() < 0.1:
        draft.body = random.choice([b"", b"{", b"[]", b"null", draft.body + b" ", draft.body.replace(b"2.0", b"1.0")])
    if random.random() < 0.1:
        draft.method = random.choice([b"GET", b"DELETE", b"PUT", b"OPTIONS", b"HEAD"])
    return draft


def _pick(name: str, *values: object) -> Callable[[Draft, Random], None]:
    def change(draft: Draft, random: Random) -> None:
        setattr(draft, name, random.choice(values))

    return change


def _add(name: bytes, *values: bytes) -> Callable[[Draft, Random], None]:
    def change(draft: Draft, random: Random) -> None:
        draft.fields.insert(random.randrange(len(draft.fields) + 1), (name, random.choice(values)))

    return change


def _set(name: bytes, *values: bytes | None) -> Callable[[Draft, Random], None]:
    def change(draft: Draft, random: Random) -> None:
        draft.replace(name, random.choice(values))

    return change


def _target(draft: Draft, random: Random) -> None:
    host = b"{plain}" if draft.target.startswith(b"/mcp") else b"{site}"
    draft.target = random.choice(
        [
            b"http://" + host + draft.target,
            b"http://evil.test" + draft.target,
            b"https://" + host + draft.target,
            b"HTTP://" + host.upper() + draft.target,
            b"/" + draft.target,
            b"//evil.test" + draft.target,
            b"*",
            b"evil.test:443",
            draft.target + b"#part",
            draft.target + b"\xe9",
            draft.target + b" x",
            draft.target + b"\t",
            draft.target + b"?" + b"q" * 9000,
            draft.target.replace(b"/", b"\\"),
            draft.target.replace(b"a", b"%61"),
            draft.target + b"%zz",
            draft.target + b'"<>^`{|}',
            draft.target.lstrip(b"/"),
            b"",
        ]
    )


def _lengths(draft: Draft, random: Random) -> None:
    size = b"%d" % len(draft.body)
    more = b"%d" % (len(draft.body) + 1)
    draft.framing = random.choice(
        [
            [(b"content-length", size), (b"content-length", size)],
            [(b"content-length", size), (b"Content-Length", more)],
            [(b"content-length", size + b", " + size)],
            [(b"content-length", b"+" + size)],
            [(b"content-length", b"-1")],
            [(b"content-length", b"0" + size)],
            [(b"content-length", b"  " + size + b"  ")],
            [(b"content-length", b"\t" + size)],
            [(b"content-length", b"0x" + size)],
            [(b"content-length", b"")],
            [(b"content-length", b"9" * 24)],
            [(b"content-length", size), (b"transfer-encoding", b"chunked")],
            [(b"transfer-encoding", b"identity"), (b"content-length", size)],
            [(b"transfer-encoding", b"chunked, chunked")],
            [(b"transfer-encoding", b"gzip, chunked")],
            [(b"transfer-encoding", b"xchunked")],
        ]
    )


def _set_chunked_body(draft: Draft, random: Random) -> None:
    draft.chunked()
    if random.random() < 0.3:
        draft.body = random.choice(
            [b"zz\r\n", b"3\r\nab\r\n0\r\n\r\n", b"1;x=y\r\na\r\n0\r\nt: v\r\n\r\n", b"1\na\n0\n\n"]
        )


def _line(*lines: bytes) -> Callable[[Draft, Random], None]:
    """Insert a line as it is."""
    return _add(b"", *lines)


def _set_coding(draft: Draft, random: Random) -> None:
    draft.fields.append((b"content-encoding", random.choice([b"gzip", b"deflate", b"br", b"x"])))
    if random.random() < 0.5:
        draft.body = gzip.compress(draft.body, mtime=0)


CHANGES: list[Callable[[Draft, Random], None]] = [
    _pick(
        "version",
        b"HTTP/1.0",
        b"HTTP/1.0",
        b"HTTP/1.2",
        b"HTTP/2.0",
        b"HTTP/0.9",
        b"http/1.1",
        b"HTTP/1.1 ",
        b"HTTP/11",
        b"",
    ),
    _pick(
        "method", b"get", b"FOO", b"M-SEARCH", b"CONNECT", b"TRACE", b"QUERY", b"G\xc9T", b"", b"GET,", b"PRI", b"HEAD"
    ),
    _pick("line_end", b"\n", b"\r", b"\r\r\n", b"\n\r\n"),
    _pick("separator", b":", b":  ", b" : ", b":\t", b" ", b":\r\n "),
    _pick("before", b"\r\n", b"\r\n\r\n", b"\n", b" ", b"\x00", b"x", b"\xef\xbb\xbf"),
    _pick("length", False),
    _target,
    _target,
    _lengths,
    _lengths,
    _lengths,
    _set_chunked_body,
    _set_coding,
    _line(
        b" folded: 1",
        b"\tfolded",
        b" ",
        b"nocolon",
        b": noname",
        b"x y: 1",
        b"x\xe9: 1",
        b"\xc3\xa9: 1",
        b"x\x00: 1",
        b"x(): 1",
    ),
    _add(
        b"x-odd",
        b"",
        b" ",
        b"\xe9",
        b"\xc3\xa9",
        b"a\x00b",
        b"a\tb",
        b"\x7f",
        b"\x01",
        b"a\rb",
        b"a\nb",
        b"x" * 8100,
        b"x" * 9000,
    ),
    _add(
        b"connection",
        b"close",
        b"close",
        b"keep-alive",
        b"Keep-Alive",
        b"CLOSE",
        b"upgrade",
        b"close, x",
        b"x-odd",
        b"",
    ),
    _add(b"keep-alive", b"timeout=5"),
    _add(b"te", b"trailers"),
    _add(b"trailer", b"x-odd"),
    _add(b"proxy-connection", b"close"),
    _add(b"expect", b"100-continue", b"100-Continue", b"something"),
    _set(b"host", None, b"", b"evil.test", b"{SITE}", b"{site}.", b"{site}, {site}", b" {site} ", b"user@{site}"),
    _add(b"host", b"{site}", b"{plain}", b"evil.test"),
    _set(b"webmcp-gateway-client", None, b"", b"2"),
    _add(b"origin", b"http://{site}", b"http://{plain}", b"http://evil.test", b"null", b""),
    _set(b"sec-fetch-site", b"cross-site", b"same-site", b"none", b"same-origin", b"Same-Origin"),
    _set(b"sec-fetch-mode", b"navigate", b"no-cors", b"websocket"),
    _set(b"accept", b"text/event-stream", b"text/html", b"", b"application/json, text/event-stream"),
    _add(b"authorization", b"Bearer x", b"Basic eDp4", b"bearer", b""),
    _add(b"cookie", b"e=f", b"webmcp-gateway-session-80=x", b""),
    _add(b"x-forwarded-for", b"203.0.113.9", b"127.0.0.1", b"nonsense"),
    _add(b"forwarded", b"for=203.0.113.9", b'for="[2001:db8::1]"'),
    _add(b"last-event-id", b"7", b"\x01\x02", b"\xe9"),
    _add(b"traceparent", b"00-%b-b7ad6b7169203331-01" % TRACE.encode(), b"nonsense"),
    _add(b"x-http-method-override", b"DELETE"),
    _add(b"range", b"bytes=0-1"),
    _add(b"if-none-match", b'"a"'),
    _add(b"mcp-session-id", b"x"),
    _add(b"mcp-protocol-version", b"2025-06-18"),
]
LATE: list[Callable[[Draft, Random], None]] = [
    lambda draft, _: draft.fields.extend((b"x-many-%d" % number, b"y") for number in range(150)),
    lambda draft, _: draft.fields.append((b"x-long", b"y" * 70_000)),
]
"""Changes that cost much, and so are few."""


@dataclass(frozen=True)
class Case:
    """Bytes for one connection, in pieces. With `unfinished` the last request lacks its end."""

    number: int
    pieces: tuple[bytes, ...]
    unfinished: bool = False

    def at(self, port: int) -> list[bytes]:
        """The pieces for a gateway on this port, whose numbers have five digits."""
        names = {b"{site}": b"page.localhost:%d", b"{SITE}": b"PAGE.localhost:%d", b"{plain}": b"localhost:%d"}
        whole = b"\xff\xfe\xfd".join(self.pieces)
        for name, host in names.items():
            whole = whole.replace(name, host % port).replace(name.upper(), (host % port).upper())
        return whole.split(b"\xff\xfe\xfd")


def sentinel(number: int) -> bytes:
    """A last request: its answer shows that the connection is open, after which the server closes it."""
    return (
        b"GET /api/items/last?n=%d HTTP/1.1\r\nhost: {site}\r\nwebmcp-gateway-client: 1\r\nconnection: close\r\n\r\n"
        % number
    )


def cases(make: Callable[[Random, bytes], Draft], seed: int, count: int) -> Iterator[Case]:
    """Yield generated cases of one door."""
    for number in range(count):
        random = Random(f"{seed}-{number}")
        drafts = [make(random, b"%d" % number) for _ in range(random.choice([1, 1, 1, 2, 3]))]
        if random.random() < 0.03:
            # Whether aiohttp reads on after an upgrade that nobody takes depends on how the bytes arrive.
            drafts[0].fields += [(b"upgrade", b"h2c"), (b"connection", b"Upgrade")]
            yield Case(number, _split(drafts[0].written(), random))
            continue
        parts, changes, closes = [b""], 0, False
        for draft in drafts:
            changes = random.choice([0, 0, 0, 1, 1, 2])
            for _ in range(changes):
                random.choice(CHANGES)(draft, random)
            if random.random() < 0.02 and draft.line_end == b"\r\n":  # else a head without end, as long as it may be
                random.choice(LATE)(draft, random)
                changes += 1
            # Where aiohttp cannot read on, it drops the requests of the same piece that it has read before.
            if changes or not draft.target.isascii():
                parts.append(b"")
            parts[-1] += draft.written()
            closes = any(name == b"connection" and value.lower() == b"close" for name, value in draft.fields)
            if closes:  # whether aiohttp sees data behind it depends on how that arrives
                break
        if len(drafts) == 1 and random.random() < 0.1:
            whole = b"".join(parts)
            # Who is refused is told so before the body by aiohttp's handlers, and after it by the fast path.
            end = max(whole.find(b"\r\n\r\n"), 2) if changes else len(whole)
            yield Case(number, _split(whole[: random.randrange(1, end)], random), unfinished=True)
        else:
            parts = [part for part in [*parts, b"" if closes else sentinel(number)] if part]
            yield Case(number, tuple(chain.from_iterable(_split(part, random) for part in parts)))


SITE_POST = Draft(b"POST", b"/api/items/1?n=1", [(b"Host", b"{site}"), *BROWSER], b'{"a": [1, 2.5]}')
MCP_POST = Draft(
    b"POST",
    b"/mcp/page",
    [(name.encode(), b"{plain}" if name == "host" else value.encode()) for name, value in HEAD.items()],
    message(arguments={"url": "/api/items/1?n=1", "_view": "proof"}).encode(),
)


def split_everywhere(draft: Draft) -> Iterator[Case]:
    """Yield a request that is split in two: at every byte of its beginning, of its end and about its line ends."""
    whole = draft.written()
    end = whole.find(b"\r\n\r\n") + 4
    for at in _cuts(whole):
        if at < 30 or end <= at < end + 8 or at > len(whole) - 8 or b"\r" in whole[at - 2 : at + 1]:
            yield Case(at, (whole[:at], whole[at:] + sentinel(at)))


def _cuts(whole: bytes) -> list[int]:
    """The places at which it may be split: not within the names that `Case.at` replaces."""
    names = [range(found.start() + 1, found.end()) for found in re.finditer(rb"\{(site|SITE|plain)\}", whole)]
    return [at for at in range(1, len(whole)) if not any(at in name for name in names)]


def _split(whole: bytes, random: Random) -> tuple[bytes, ...]:
    """Split the bytes of a connection at a few places, mostly at none."""
    wanted = {random.randrange(len(whole)) for _ in range(random.choice([0, 0, 0, 0, 0, 0, 0, 1, 2, 4]))}
    cuts = sorted(wanted & set(_cuts(whole)))
    return tuple(whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True) if end > start)
