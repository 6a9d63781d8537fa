"""Injects the view runtime into pages of upstreams, first in their `<head>`."""

from __future__ import annotations

import re

from gateway.mcp.upstreams.transport.conversation import Message

_HEAD = re.compile(r"<head(?=[\s>])", re.IGNORECASE)
_HTML = re.compile(r"<html(?=[\s>])", re.IGNORECASE)
_DOCTYPE = re.compile(r"\s*<!doctype", re.IGNORECASE)


def with_runtime(result: Message, runtime: str) -> Message:
    """Return a result of `resources/read` with the runtime in every app."""
    contents = result.get("contents")
    if not isinstance(contents, list):
        return result
    return {**result, "contents": [_content(content, runtime) for content in contents]}


def page_with_runtime(html: str, runtime: str) -> str:
    """Return a page with the script first in its head."""
    script = "<script>" + runtime.replace("</script", "<\\/script") + "</script>"
    for found in (_HEAD.search(html), _HTML.search(html), _DOCTYPE.match(html)):
        if found is not None and (end := html.find(">", found.end()) + 1):
            return html[:end] + script + html[end:]
    return script + html


def _content(content: object, runtime: str) -> object:
    if not isinstance(content, dict):
        return content
    text, kind = content.get("text"), str(content.get("mimeType", "")).replace(" ", "").lower()
    is_app = kind == "text/html;profile=mcp-app" or str(content.get("uri", "")).startswith("mcp-app://")
    return {**content, "text": page_with_runtime(text, runtime)} if is_app and isinstance(text, str) else content
