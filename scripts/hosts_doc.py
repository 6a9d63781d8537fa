"""Writes the table of hosts in docs/hosts.md from what the gateway knows of them. Run `python scripts/hosts_doc.py`."""

from __future__ import annotations

from pathlib import Path

from gateway.apps.host_quirks import HOSTS, Quirks

PAGE = Path(__file__).parent.parent / "docs" / "hosts.md"
BEGIN = "<!-- made by scripts/hosts_doc.py: -->\n"
END = "<!-- until here -->\n"


def table() -> str:
    """Return the table, and the sources below it."""
    lines = [
        "| host | shows apps | calls app tools | a model's call reaches a page by | elicitation "
        "| display modes | frame | `connect` |",
        "|---|---|---|---|---|---|---|---|",
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
        f"`{host.connect}`" if host.connect is not None else "",
    ]
    return f"| {' | '.join(cells)} |"


def _known(fact: bool | None) -> str:
    return {True: "yes", False: "no", None: "?"}[fact]


def _source(date: str, fact: str, url: str) -> str:
    return f"[{fact}]({url}) ({date})" if url else f"{fact} ({date})"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
