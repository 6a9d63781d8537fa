"""Finds paths that a web app's files request (`fetch`, similar calls, forms, elements), and names of WebMCP tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUFFIXES: Final = frozenset({".html", ".htm", ".js", ".mjs", ".jsx", ".ts", ".mts", ".tsx", ".vue", ".svelte"})
MAX_FILE: Final = 4 * 1024 * 1024
"""Bytes; larger files are skipped and reported."""

_FETCH = re.compile(
    r"""(?:\bfetch\s*\(                                                # fetch('/…')
         |\.open\s*\(\s*["'`](?i:GET)["'`]\s*,                         # request.open('GET', '/…')
         |(?:\b(?:axios|http|jQuery|ky)|\$http|\$)\s*\.\s*get(?:JSON)?\s*(?:<[^()]{0,200}>\s*)?\(  # axios.get('/…')
         |(?P<stream>\bnew\s+EventSource\s*\()                          # new EventSource('/…')
        )\s*(?:"(?P<double>/[^"\s]*)"|'(?P<single>/[^'\s]*)'|`(?P<template>/[^`\s]*)`)\s*(?P<plus>\+)?
        (?![^,(){};]{0,100},\s*\{(?:[^{}]|\{[^{}]{0,300}\}){0,300}?  # not fetch('/…', {method: 'POST'})
           \bmethod["']?\s*:\s*["'`](?!(?i:GET)["'`]))""",
    re.VERBOSE,
)
_FORM = re.compile(r"""<form(?=\s)(?P<attributes>(?:[^<>"']|"[^"]*"|'[^']*'){0,4000})""", re.IGNORECASE)
_LOADS = re.compile(
    r"""<(?:img|source|video|audio|track|script|link)(?=\s)(?P<attributes>(?:[^<>"']|"[^"]*"|'[^']*'){0,4000})""",
    re.IGNORECASE,
)
_SHEET = re.compile("stylesheet|preload", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""(?<=\s)([a-z]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=<>`{]+))""", re.IGNORECASE)
_NAME = re.compile("[A-Za-z0-9_.-]{1,128}", re.ASCII)
_TOOL = re.compile(r"""\bregisterTool\s*\(\s*\{\s*["']?name["']?\s*:\s*["'`]([A-Za-z0-9_.-]{1,128})["'`]""")
_HOLE = re.compile(r"\$\{([^{}]*)\}")
_HOLES = re.compile(r"\{[^{}]*\}")
_LAST_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,31})\W*$", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+|\{[A-Za-z][A-Za-z0-9_]*\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Path patterns (`/api/cart/{id}`) and tool names, sorted; `unread` are files that are too large or not text.

    `streams` are the paths whose answers are event streams.
    """

    paths: tuple[str, ...]
    streams: frozenset[str]
    tools: tuple[str, ...]
    unread: tuple[Path, ...]


def scan(source: Path) -> ScanResult:
    """Scan the web app at `source`, a folder or one HTML file."""
    paths: dict[str, str] = {}  # by shape: the names of parameters do not matter
    streams: set[str] = set()
    tools: set[str] = set()
    unread: list[Path] = []
    for file in _files(source):
        try:
            text = file.read_text(encoding="utf-8") if file.stat().st_size <= MAX_FILE else None
        except UnicodeDecodeError:
            text = None
        if text is None:
            unread.append(file)
            continue
        forms = [_attributes(match["attributes"]) for match in _FORM.finditer(text)]
        asked = [(_pattern(match), match["stream"]) for match in _FETCH.finditer(text)]
        loaded = [path for match in _LOADS.finditer(text) for path in _loaded(_attributes(match["attributes"]), source)]
        for path, stream in (*asked, *((_action(form), None) for form in forms), *((path, None) for path in loaded)):
            if path is not None:
                shape = _HOLES.sub("{}", path)
                paths[shape] = path
                if stream:
                    streams.add(shape)
        tools.update(_TOOL.findall(text))
        tools.update(name for form in forms if _NAME.fullmatch(name := form.get("toolname", "")))
    streamed = frozenset(paths[shape] for shape in streams)
    return ScanResult(tuple(sorted(paths.values())), streamed, tuple(sorted(tools)), tuple(unread))


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
        return
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        hidden = any(part.startswith(".") or part == "node_modules" for part in parts)
        if not hidden and path.suffix in SUFFIXES and path.is_file():
            yield path


def _attributes(text: str) -> dict[str, str]:
    return {name.lower(): double or single or bare for name, double, single, bare in _ATTRIBUTE.findall(text)}


def _action(form: dict[str, str]) -> str | None:
    """Return the path that a form requests; None if it is not GET, or goes to another site."""
    action = form.get("action", "")
    return _path(action) if action.startswith("/") and form.get("method", "get").lower() == "get" else None


def _loaded(element: dict[str, str], source: Path) -> Iterator[str]:
    """Yield the paths of an element's files that are not in the app's folder, so on the backend."""
    folder = source if source.is_dir() else source.parent
    candidates = [candidate.split()[0] for candidate in element.get("srcset", "").split(",") if candidate.strip()]
    sheet = element.get("href", "") if _SHEET.search(element.get("rel", "")) else ""
    for url in (element.get("src", ""), element.get("poster", ""), sheet, *candidates):
        path = _path(url) if url.startswith("/") else None
        if path is not None and not (folder / path.lstrip("/")).exists():
            yield path


def _pattern(match: re.Match[str]) -> str | None:
    """Return the path that a script requests."""
    text = match["double"] or match["single"] or _HOLE.sub(_parameter, match["template"] or "")
    return _path(text + "{item}" if match["plus"] and text.endswith("/") and not re.search("[?#]", text) else text)


def _path(text: str) -> str | None:
    """Return the path as a policy writes it; None if a placeholder is only a part of a segment."""
    path = re.split("[?#]", text, maxsplit=1)[0]
    segments = path.split("/")[1:]
    if not all(_SEGMENT.fullmatch(segment) for segment in segments) or {".", ".."} & set(segments):
        return None
    names = [segment for segment in segments if segment.startswith("{")]
    return path if len(set(names)) == len(names) else None


def _parameter(match: re.Match[str]) -> str:
    name = _LAST_NAME.search(match[1])
    return "{" + (name[1] if name else "item") + "}"
