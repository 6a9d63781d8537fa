"""What the files of a web app say that it asks for: paths given to `fetch`, names of WebMCP tools."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUFFIXES: Final = frozenset({".html", ".htm", ".js", ".mjs", ".jsx", ".ts", ".mts", ".tsx", ".vue", ".svelte"})
MAX_FILE: Final = 4 * 1024 * 1024
"""Bytes; a larger file is left out, and named."""

_FETCH = re.compile(
    r"""\bfetch\s*\(\s*(?:"(?P<double>/[^"\s]*)"|'(?P<single>/[^'\s]*)'|`(?P<template>/[^`\s]*)`)\s*(?P<plus>\+)?"""
)
_TOOL = re.compile(r"""\bregisterTool\s*\(\s*\{\s*["']?name["']?\s*:\s*["'`]([A-Za-z0-9_.-]{1,128})["'`]""")
_HOLE = re.compile(r"\$\{([^{}]*)\}")
_HOLES = re.compile(r"\{[^{}]*\}")
_LAST_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,31})\W*$", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+|\{[A-Za-z][A-Za-z0-9_]*\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Found:
    """Path patterns (`/api/cart/{id}`) and tool names, sorted; `unread` are files too large or not text."""

    paths: tuple[str, ...]
    tools: tuple[str, ...]
    unread: tuple[Path, ...]


def scan(source: Path) -> Found:
    """Look through the web app at `source`, a folder or one HTML file."""
    paths: dict[str, str] = {}  # by their shape: what a hole is called makes no difference
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
        found = (path for match in _FETCH.finditer(text) if (path := _pattern(match)))
        paths.update((_HOLES.sub("{}", path), path) for path in found)
        tools.update(_TOOL.findall(text))
    return Found(tuple(sorted(paths.values())), tuple(sorted(tools)), tuple(unread))


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
        return
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        hidden = any(part.startswith(".") or part == "node_modules" for part in parts)
        if not hidden and path.suffix in SUFFIXES and path.is_file():
            yield path


def _pattern(match: re.Match[str]) -> str | None:
    """The path as a policy writes it; None where a hole is only a part of a segment."""
    text = match["double"] or match["single"] or _HOLE.sub(_parameter, match["template"] or "")
    path = re.split("[?#]", text, maxsplit=1)[0]
    if match["plus"] and path == text and path.endswith("/"):
        path += "{item}"
    segments = path.split("/")[1:]
    if not all(_SEGMENT.fullmatch(segment) for segment in segments) or {".", ".."} & set(segments):
        return None
    names = [segment for segment in segments if segment.startswith("{")]
    return path if len(set(names)) == len(names) else None


def _parameter(match: re.Match[str]) -> str:
    name = _LAST_NAME.search(match[1])
    return "{" + (name[1] if name else "item") + "}"
