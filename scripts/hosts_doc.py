"""The known facts of hosts that show apps, with date and source, for the docs and the tests of hosts.

`python scripts/hosts_doc.py` writes the table in docs/hosts.md from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parent.parent / "docs" / "hosts.md"
BEGIN: Final = "<!-- made by scripts/hosts_doc.py: -->\n"
END: Final = "<!-- until here -->\n"


class FrameKind(StrEnum):
    """The origin of the frame of an app: opaque, or one of its own."""

    OPAQUE = "opaque"
    DEDICATED = "dedicated"


class CallPath(StrEnum):
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
    def path(self) -> CallPath | None:
        """The way of a model's call to a page here; None if it shows no pages."""
        if self.shows is False:
            return None
        return CallPath.BRIDGE if self.bridge else CallPath.APP_TOOLS if self.app_tools else CallPath.RELAY


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


def table() -> str:
    """Return the table, and the sources below it."""
    lines = [
        "| host | shows apps | calls app tools | a model's call reaches a page by | elicitation "
        "| display modes | frame | serial calls | late answers | wrapped parent | `connect` |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(_row(host) for host in HOSTS),
        "",
        *(
            f"- **{host.title}**: " + "; ".join(_source(one.date, one.fact, one.url) for one in host.sources) + "."
            for host in HOSTS
        ),
    ]
    return "".join(f"{line}\n" for line in lines)


def page(text: str) -> str:
    """Return the page with the current table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _row(host: Quirks) -> str:
    cells = [
        host.title,
        _known(host.shows),
        _known(host.app_tools) if host.shows is not False else "",
        host.path or "",
        _known(host.elicitation),
        ", ".join(host.display_modes) if host.display_modes else "?" if host.shows is not False else "",
        host.frame or ("?" if host.shows is not False else ""),
        *(
            _known(fact) if host.shows is not False else ""
            for fact in (host.serial_calls, host.late_answers, host.wraps_parent)
        ),
        f"`{host.connect}`" if host.connect is not None else "",
    ]
    return f"| {' | '.join(cells)} |"


def _known(fact: bool | None) -> str:
    return {True: "yes", False: "no", None: "?"}[fact]


def _source(date: str, fact: str, url: str) -> str:
    return f"[{fact}]({url}) ({date})" if url else f"{fact} ({date})"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
