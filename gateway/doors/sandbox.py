"""The sandbox proxy: a page on a separate site, under the content security policy in its signed address."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from gateway.crypto import SigningKeys
from gateway.doors.access import STREAMS
from gateway.doors.assets import asset, file_response
from gateway.doors.responses import SECURE, refusal_response
from gateway.jsontext.writing import plain_json
from gateway.model import ExternalSites

_ORIGIN = re.compile(r"(https?|wss?)://[A-Za-z0-9.-]+(:[0-9]{1,5})?")
_SUBDOMAINS = re.compile(r"(https?|wss?)://\*(\.[A-Za-z0-9-]+){2,}(:[0-9]{1,5})?")
_NAMED = re.compile(f"{_SUBDOMAINS.pattern}|{_ORIGIN.pattern}")

_CONNECTIONS = "connectDomains"
_RESOURCES = "resourceDomains"
_KINDS = (_CONNECTIONS, _RESOURCES, "frameDomains")

_OWN_WILDCARDS = frozenset({_RESOURCES})
"""The kinds of which an app of the gateway's own may name all subdomains of a site (MCP Apps, `McpUiResourceCsp`)."""

_DECLARED_WILDCARDS = frozenset({_RESOURCES, _CONNECTIONS})
"""The same for an app of an upstream.

Published apps declare both lists alike, and a host must not be stricter than the browser for them to work. It opens
nothing further: what an app may load from a site, it may also send there, in the address.
"""

_SCRIPTS = {"blob-workers": "blob: data:", "eval": "'unsafe-eval'", "wasm": "'wasm-unsafe-eval'"}
"""Workers load further scripts by these; beside inline scripts they allow nothing new in the page itself."""

OWN_FRAMES = "own-frames"
"""The word for frames at `blob:` URLs, which have the page's origin and policy."""

MAX_ORIGINS = 64
"""Origins of one kind that an upstream's app may declare; further ones are left out."""


class SandboxDoor:
    """The site of the proxy. `folder` holds its built page; `origin` is its origin, and `keys` sign its addresses."""

    def __init__(self, folder: Path, origin: str, keys: SigningKeys) -> None:
        self._page = asset(folder / "proxy.html")
        self._script = script_hash(self._page.body.decode())
        self._origin = origin
        self._keys = keys

    def url(
        self, host: str, meta: Mapping[str, Any], allow: Collection[str] = (), external: ExternalSites | None = None
    ) -> str:
        """Return the address of a proxy that pages of origin `host` may show, for a packed app with this `_meta.ui`.
        `allow` lists what the configuration permits beyond the policy of MCP Apps, `external` the sites by kind.
        """
        policy = content_policy(meta.get("csp") or {}, host, allow, external, streams=self.streams)
        return self._signed_query(csp=policy, host=host)

    def url_for_declared(self, host: str, ui: Mapping[str, Any], allow: Collection[str] = ()) -> str:
        """Return the same for an upstream's app with this `_meta.ui`."""
        return self._signed_query(csp=declared_policy(ui, host, allow), host=host)

    @property
    def streams(self) -> str:
        """The URL below which the pages of packed apps read their event streams."""
        return f"{self._origin}{STREAMS}"

    def url_for_frame(self, host: str, frame: str) -> str:
        """Return the address of a proxy that pages of origin `host` may show, and that shows documents of `frame`."""
        return self._signed_query(csp=proxy_policy(host, frame), host=host, frame=frame)

    def _signed_query(self, **query: str) -> str:
        parts = [query["host"], query["csp"], *([query["frame"]] if "frame" in query else [])]
        return f"{self._origin}/proxy.html?{urlencode({**query, 'sig': self._keys.sign(*parts)})}"

    def application(self) -> web.Application:
        """Return the aiohttp application of this site."""
        app = web.Application()
        app.router.add_get("/proxy.html", self._proxy)
        app.on_response_prepare.append(_secure)
        return app

    async def _proxy(self, request: web.Request) -> web.StreamResponse:
        policy, host = request.query.get("csp", ""), request.query.get("host", "")
        signature, frame = request.query.get("sig", ""), request.query.getall("frame", [])
        if not self._keys.verify(signature, host, policy, *frame):
            return refusal_response(
                403, "bad-signature", "This address of the sandbox proxy was not made by this gateway."
            )
        # Without inline scripts in its policy, its own is known by its digest.
        own_policy = policy.replace("script-src 'self';", f"script-src {self._script};") if frame else policy
        headers = {
            "content-security-policy": own_policy,
            "connection-allowlist": connections(policy),
            "cache-control": "no-cache",
        }
        return file_response(request, self._page, headers)


def script_hash(html: str) -> str:
    """Return the source (CSP, 2.3.1) of the one inline script of a page."""
    script = html.partition('<script type="module">')[2].partition("</script>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def declared_policy(ui: Mapping[str, Any], host: str, allow: Collection[str] = ()) -> str:
    """Return the header under which an upstream's app with this `_meta.ui` runs: invalid origins are left out."""
    csp = ui.get("csp")
    values: dict[str, Sequence[str]] = {}
    for key in _KINDS:
        entries = csp.get(key) if isinstance(csp, dict) else None
        named = entries if isinstance(entries, list) else []
        values[key] = [entry for entry in named if _is_origin(entry, key, _DECLARED_WILDCARDS)][:MAX_ORIGINS]
    return content_policy(values, host, allow, wildcards=_DECLARED_WILDCARDS)


def proxy_policy(host: str, frame: str) -> str:
    """Return the header of a proxy that shows documents of the origin `frame`: nothing else is loaded into it."""
    loads = f"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; frame-src {frame}"
    return f"{loads}; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors {host}"


def content_policy(
    csp: Mapping[str, Any],
    host: str,
    allow: Collection[str] = (),
    external: ExternalSites | None = None,
    wildcards: Collection[str] = _OWN_WILDCARDS,
    streams: str = "",
) -> str:
    """Return the header under which an app runs. Raises `ValueError` for an entry that is no plain origin.

    In the lists of `wildcards`, an entry may also name all subdomains of a site. `external` opens each site only for
    its kind of files, where MCP Apps has one list for all. `host` is the origins of the pages around it. `allow` may
    have `own-frames`: frames of the page's own documents. `streams` is the gateway's URL below which the page reads its
    event streams; empty if it has none there.
    """
    scripts = "".join(f" {_SCRIPTS[word]}" for word in _SCRIPTS if word in allow)
    connect, resources, frames = (_origins(csp.get(key) or (), key, wildcards) for key in _KINDS)
    frames = f" blob:{frames}" if OWN_FRAMES in allow else frames
    of_kind = dict.fromkeys(("scripts", "styles", "images", "fonts"), resources)
    if external is not None:
        of_kind = {kind: _origins(external.origins.get(kind, ()), kind, wildcards) for kind in of_kind}
        of_kind["scripts"] = "".join(f" {url}" for url in external.scripts)
    return "; ".join(
        (
            "default-src 'none'",
            # The host recognizes probes by the sample.
            f"script-src 'self' 'unsafe-inline' 'report-sample'{scripts}{of_kind['scripts']}",
            # The modules that a worker imports are loaded under this; the worker itself is of the page's own origin.
            *([f"worker-src blob:{of_kind['scripts']}"] if "blob-workers" in allow else []),
            f"style-src 'self' 'unsafe-inline'{of_kind['styles']}",
            f"img-src 'self' data: blob:{of_kind['images']}",
            f"font-src data:{of_kind['fonts']}",
            f"media-src data: blob:{of_kind['images']}",
            f"connect-src {f'{connect} {streams}'.strip() or repr('none')}",
            *([f"frame-src{frames}"] if frames else []),
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            f"frame-ancestors {host}",
        )
    )


def connections(policy: str) -> str:
    """Return the header that restricts an app's connections to its `policy`, also those that no policy covers.
    Those are WebRTC, a connection or name look-up in advance, and navigation. Redirects are left to the policy, which
    checks each of them.
    """
    entries = _NAMED.finditer(policy.partition("; frame-ancestors")[0])
    origins = sorted({plain_json(re.sub("^ws", "http", each[0])) for each in entries})
    return f"({' '.join(['response-origin', *origins])});redirects=allow"


def _origins(entries: Sequence[str], key: str, wildcards: Collection[str]) -> str:
    for entry in entries:
        if not _is_origin(entry, key, wildcards):
            raise ValueError(f"{entry!r} is not a plain origin such as https://cdn.example.com")
    return "".join(f" {entry}" for entry in entries)


def _is_origin(entry: object, key: str, wildcards: Collection[str]) -> bool:
    """Return whether it is an origin, or all subdomains of a site where that is allowed; sockets load no resources."""
    if not isinstance(entry, str):
        return False
    if _ORIGIN.fullmatch(entry):
        return True
    is_socket = entry.startswith("ws")
    return key in wildcards and not (is_socket and key == _RESOURCES) and bool(_SUBDOMAINS.fullmatch(entry))


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURE.items():
        response.headers.setdefault(name, value)
