"""The corpus of attacks: YAML files of cases, and the MCP messages that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import yaml

from gateway.errors import DocumentError, Problem
from gateway.event_stream import EventReader
from gateway.jsontext.reading import parse_json

CaseData = Mapping[str, Any]
"""One case as in its file, expanded; each family has different keys."""

PLACES: Final = ("bundled/attacks", "../tests/attacks/cases")
"""The folders of the corpus: in the wheel, or in a clone."""


def corpus_folder(package: Path) -> Path:
    """Return the corpus folder of the package `gateway` in `package`. Raises DocumentError."""
    for place in PLACES:
        if (package / place).is_dir():
            return package / place
    raise DocumentError([Problem(str(package / PLACES[0]), 1, 1, "the corpus of attacks is not installed")])


def read_family(path: Path) -> list[CaseData]:
    """Read the cases of one file, each with its `family`. Raises DocumentError."""
    try:
        entries = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise DocumentError([Problem(str(path), 1, 1, str(error))]) from error
    return [{"family": path.stem, **case} for entry in entries for case in _spread(entry)]


def read_corpus(folder: Path) -> list[CaseData]:
    """Read every case of every family."""
    return [case for path in sorted(folder.glob("*.yaml")) for case in read_family(path)]


def _spread(entry: dict[str, Any]) -> Iterator[CaseData]:
    """Yield one case, or one for each member of `over`, which maps an id's suffix to the member."""
    over = entry.get("over")
    if over is None:
        yield expand(entry, None)
        return
    rest = {name: value for name, value in entry.items() if name not in ("over", "id")}
    for name, member in over.items():
        yield {"id": f"{entry['id']}-{name}", **expand(rest, expand(member, None))}


def expand(value: Any, it: Any) -> Any:
    """Evaluate the `$` words in `value`; `it` replaces `$it`."""
    if isinstance(value, str):
        return it if value == "$it" else value.replace("$it", it) if isinstance(it, str) else value
    if isinstance(value, list):
        return [expand(part, it) for part in value]
    if not isinstance(value, dict):
        return value
    word = next(iter(value), None)
    if len(value) == 1 and isinstance(word, str) and word in _WORDS:
        return _WORDS[word](expand(value[word], it))
    return {expand(name, it): expand(part, it) for name, part in value.items()}


_WORDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "$repeat": lambda values: values[0] * values[1],
    "$first": lambda values: values[0],
    "$second": lambda values: values[1],
    "$third": lambda values: values[2],
    "$text": str,
    "$join": "".join,
    "$chars": lambda values: "".join(map(chr, values)),
    "$nest": lambda depth: "[" * depth + "]" * depth,
    "$merge": lambda values: {**values[0], **values[1]},
    "$list": lambda values: [values[0]] * values[1],
    "$many": lambda values: {f"{values[0]}{number}": "x" for number in range(values[1])},
}


VERSION: Final = "2026-07-28"
UI: Final = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
_OPENS: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def meta(*, shows_apps: bool = True) -> dict[str, Any]:
    """Return the `_meta` of a message of protocol 2026-07-28."""
    return {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "webmcp-gateway attack", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": UI if shows_apps else {},
    }


def message(case: CaseData) -> tuple[dict[str, str], Any]:
    """Return header fields and body of a case: `rpc` is a message to be completed, `mcp` a raw body."""
    headers = {**_OPENS, "mcp-protocol-version": VERSION}
    if "mcp" in case:
        return headers, case["mcp"]
    whole = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}, **case["rpc"]}
    params = whole["params"]
    if isinstance(params, dict):
        meta_values, own = params.get("_meta", {}), meta(shows_apps=case.get("shows_apps", True))
        whole["params"] = {**params, "_meta": {**own, **meta_values} if isinstance(meta_values, dict) else meta_values}
        headers["mcp-name"] = str(params.get("name", params.get("uri", "")))
    headers["mcp-method"] = str(whole["method"])
    return headers, {name: value for name, value in whole.items() if value != "$none"}


def answer_in(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON-RPC response in a body, which is JSON or an event stream."""
    texts = [raw]
    with suppress(ValueError):  # no event stream
        texts += [bytes(event.data) for event in EventReader(len(raw) + 2).feed(raw + b"\n\n") if event is not None]
    for text in texts:
        try:
            value = parse_json(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and ("result" in value or "error" in value):
            return value
    return None


def matches_case(case: CaseData, status: int, raw: bytes) -> bool:
    """Return whether an answer is as the case expects: with its message's exact id, or a refusal."""
    expected, answer = case["expect"], answer_in(raw)
    if isinstance(expected, dict) and "id" in expected:
        return answer is not None and _same(answer.get("id"), expected["id"]) if status == 200 else status < 500
    statuses = expected.get("status", []) if isinstance(expected, dict) else expected
    if answer is None or "error" in answer:
        return 200 <= status < 500
    return 200 in (statuses if isinstance(statuses, list) else [statuses]) and _says_no(answer["result"])


def _same(actual: Any, pattern: Any) -> bool:
    return type(actual) is type(pattern) and bool(actual == pattern)


def _says_no(result: Any) -> bool:
    """Return whether a result is a tool error, or contains an HTTP answer that refuses."""
    if not isinstance(result, dict):
        return False
    content = result.get("structuredContent")
    status = content.get("status") if isinstance(content, dict) else None
    return result.get("isError") is True or (isinstance(status, int) and status >= 400)
