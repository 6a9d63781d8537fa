"""Known facts of the hosts that show apps, with date and source of each fact, for the docs and the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class FrameKind(StrEnum):
    """The origin of the frame of an app: opaque, or one of its own."""

    OPAQUE = "opaque"
    DEDICATED = "dedicated"


class Path(StrEnum):
    """The path of a model's call to a tool of a page."""

    BRIDGE = "the bridge"
    APP_TOOLS = "app tools of the host"
    RELAY = "relay: the page polls the gateway"


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a fact, and the date at which it was written there."""

    date: str
    fact: str
    url: str


@dataclass(frozen=True, slots=True)
class Quirks:
    """A host. A fact that nobody has stated is None: the runtime then does without it.

    `connect` is its name in `webmcp-gateway connect`. `shows` is whether it shows apps at all. `app_tools`: it calls
    tools of a page. `elicitation`: it asks its person, or leads to a page, when a server wants that. `drops_meta`: it
    removes `_meta` of results, so that views are unproven. `serial_calls`: it carries one call at a time.
    `late_answers`: it may answer `ui/initialize` after five seconds. `wraps_parent`: it replaces `window.parent`.
    """

    title: str
    connect: str | None
    shows: bool | None = None
    app_tools: bool | None = None
    elicitation: bool | None = None
    display_modes: tuple[str, ...] | None = None
    drops_meta: bool | None = None
    serial_calls: bool | None = None
    late_answers: bool | None = None
    wraps_parent: bool | None = None
    frame: FrameKind | None = None
    bridge: bool = False
    sources: Sequence[Source] = ()

    @property
    def path(self) -> Path | None:
        """The way of a model's call to a page here; None if it shows no pages."""
        if self.shows is False:
            return None
        return Path.BRIDGE if self.bridge else Path.APP_TOOLS if self.app_tools else Path.RELAY


_CLIENTS: Final = "https://dev.to/serverdex/which-mcp-clients-support-which-features-i-read-the-docs-59kb"
_MATRIX: Final = "https://www.developersdigest.tech/mcp-servers/clients"
_EXT: Final = "https://github.com/modelcontextprotocol/ext-apps"

OWN: Final = Quirks(
    "`<mcp-app>`, the console",
    None,
    shows=True,
    app_tools=False,
    elicitation=True,
    display_modes=("inline", "fullscreen", "pip"),
    drops_meta=False,
    serial_calls=False,
    late_answers=False,
    wraps_parent=False,
    frame=FrameKind.OPAQUE,
    bridge=True,
    sources=(Source("2026-11", "this gateway's own, with an app's `sandbox: dedicated` on an origin of its own", ""),),
)

HOSTS: Final = (
    OWN,
    Quirks(
        "Claude (web)",
        None,
        shows=True,
        app_tools=True,
        display_modes=("inline", "fullscreen"),
        frame=FrameKind.DEDICATED,
        sources=(
            Source("2026-06", "the only client known to call app tools", f"{_EXT}/issues/676"),
            Source("2026-06", "in fullscreen the chat lies over the app", f"{_EXT}/issues/688"),
            Source("2026-01", "each app may ask for an origin of its own (`_meta.ui.domain`)", f"{_EXT}"),
        ),
    ),
    Quirks(
        "Claude Desktop",
        "claude-desktop",
        shows=True,
        app_tools=False,
        display_modes=("inline", "fullscreen"),
        sources=(
            Source("2026-05", "tools that a page declares are never listed", f"{_EXT}/issues/655"),
            Source("2026-02", "shows apps in fullscreen", "https://github.com/excalidraw/excalidraw-mcp/pull/9"),
            Source("2026-11", "its documentation does not mention elicitation", _MATRIX),
        ),
    ),
    Quirks(
        "Claude Code",
        "claude-code",
        shows=False,
        elicitation=True,
        sources=(Source("2026-11", "a terminal; elicitation is documented", _MATRIX),),
    ),
    Quirks(
        "VS Code",
        "vscode",
        shows=True,
        elicitation=True,
        display_modes=("inline",),
        sources=(
            Source("2026-02", "inline only", "https://github.com/excalidraw/excalidraw-mcp/pull/9"),
            Source("2026-11", "elicitation is documented", _CLIENTS),
        ),
    ),
    Quirks(
        "Cursor",
        "cursor",
        shows=True,
        elicitation=True,
        sources=(
            Source("2026-06", "shows apps inline, lower than its window", f"{_EXT}/issues/688"),
            Source("2026-11", "elicitation is documented", _CLIENTS),
        ),
    ),
    Quirks(
        "goose",
        "goose",
        shows=True,
        app_tools=False,
        display_modes=("inline", "fullscreen", "pip"),
        sources=(
            Source("2026-03", "tools that a page declares are ignored", "https://github.com/block/goose/issues/8016"),
            Source("2026-02", "fullscreen and pip", "https://github.com/aaif-goose/goose/pull/7312"),
        ),
    ),
    Quirks(
        "ChatGPT",
        "chatgpt",
        shows=True,
        elicitation=True,
        display_modes=("inline", "fullscreen", "pip"),
        frame=FrameKind.DEDICATED,
        sources=(
            Source("2025-11", "three modes", "https://dev.to/abewheeler/chatgpt-app-display-mode-reference-49im"),
            Source("2026-11", "elicitation is documented", _CLIENTS),
            Source("2026-02", "an origin for each app", "https://developers.openai.com/apps-sdk/"),
        ),
    ),
    Quirks(
        "MCP Inspector",
        "inspector",
        sources=(Source("2026-11", "for developers; its facts change with its versions", ""),),
    ),
)
"""The hosts, in the order of the table."""
