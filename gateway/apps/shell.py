"""The shell of an app whose pages a backend renders: made of configuration alone, it shows each page in a frame."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Collection, Mapping
from typing import Final

from gateway.apps.pack import EXTERNAL, FRAME_WORDS, PERMISSIONS, UNGUESSED, external_sites, head_of, with_parts
from gateway.apps.page_scripts import IMPORT, WAITS
from gateway.apps.scripts import as_element_text
from gateway.jsontext.writing import compact_json_utf8
from gateway.model import Json, Resource
from gateway.policy.page_rules import External

SHELL: Final = "shell/shell.js"
"""The script of the shell, after the view runtime."""

PAGED: Final = "paged/paged.js"
"""The script of each page in the shell, after the view runtime and its parts."""

_OWN: Final = "webmcp-gateway-shell"
"""The id of the element with all that the shell puts into its pages."""

_POLICY: Final = "frame-src 'none'; form-action 'none'; object-src 'none'"
"""The shell's own content security policy: no frame in it navigates anywhere, whatever its host allows."""


FRAME: Final = "/.well-known/webmcp-gateway/frame.json"
"""The path at which a packed page finds what `page_config` returns, when it shows a frame of its own backend."""


def page_config(
    *,
    app: str,
    title: str,
    runtime: str,
    parts: Mapping[str, Collection[str]],
    paged: str,
    storage: str | None,
    external: External,
) -> dict[str, Json]:
    """Return what each page of a backend gets in its frame: its script, and the data about its app.

    `storage` is the script that keeps its storage at the gateway, if the app is configured so.
    """
    words = [
        word
        for word in parts
        if word not in FRAME_WORDS and (word not in UNGUESSED or word == IMPORT or (external and word == EXTERNAL))
    ]
    pieces = [part for word in words for part in parts[word]]
    starters = [storage] if storage is not None else [*parts.get(WAITS, ())]
    about: dict[str, Json] = {"app": app, "title": title, "base": "/"}
    if external:
        about["external"] = external_sites(external)
    return {
        "script": as_element_text(";".join([with_parts(runtime, pieces, parts), paged, *starters])),
        "about": about,
    }


def make_shell(
    *,
    app: str,
    title: str,
    runtime: str,
    parts: Mapping[str, Collection[str]],
    shell: str,
    paged: str,
    storage: str | None,
    origin: str,
    site: str,
    start: str,
    permissions: Collection[str],
    external: External,
) -> Resource:
    """Return the shell of `app`, which is the same for everybody and needs no backend.

    `origin` is that of the pages, at which their scripts find themselves, `site` that of the app's own site, and
    `start` the path of the first page.
    `storage` is the script that keeps their storage at the gateway, if the app is configured so. `permissions` are
    those that any page may use.
    """
    inner: dict[str, Json] = {
        **page_config(
            app=app, title=title, runtime=runtime, parts=parts, paged=paged, storage=storage, external=external
        ),
        "origin": origin,
        "site": site,
        "start": start,
        "allow": "; ".join(permissions),
    }
    text = compact_json_utf8(inner).replace("<", r"\u003c")
    page = (
        f'<!doctype html><html><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"{head_of({'app': app, 'title': title, 'base': f'{origin}/'}, ';'.join([runtime, shell]))}"
        f'<meta http-equiv="content-security-policy" content="{_POLICY}">'
        f'<script type="application/json" id="{_OWN}">{text}</script></head><body></body></html>'
    )
    meta: dict[str, Json] = {
        "csp": {"connectDomains": [*external.connects()], "resourceDomains": [*external.resources()]}
    }
    if permissions:
        meta["permissions"] = {PERMISSIONS[name][0]: {} for name in permissions}
    digest = hashlib.sha256(page.encode()).hexdigest()
    notes = [f"its pages come from {origin}; the shell that shows them has {len(page.encode()):,} bytes"]
    return Resource(f"ui://{app}/{digest[:12]}.html", page, meta, notes, page.index("<meta name="), external=external)
