"""Makes requests canonical: parsed once, then decided on and sent byte for byte.

Raises `Refusal`: `bad-request` for ambiguous requests, `policy-denied` for an origin of no backend, `request-too-large`
for a body too large for a rule to read.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Final

from gateway.errors import Reason, Refusal
from gateway.jsontext.sizes import MOST, is_bulky, why
from gateway.model import WEBSOCKET, BodyType, CanonicalRequest, Request
from gateway.policy import paths
from gateway.policy.bodies import canonical_json, method_override
from gateway.policy.destinations import canonical_origin
from gateway.policy.headers import filter_request_headers
from gateway.policy.obligations import is_protocol
from gateway.policy.policy import Policy, opaque_segments
from gateway.policy.rules import METHODS, Route

MAX_URL: Final = 8 * 1024

REMEMBERED: Final = 256
"""Canonical requests in a policy's cache: without a body, at most `SHORT` characters of URL and `FEW` headers."""

PROTOCOLS: Final = 16
"""Subprotocols that one WebSocket may ask for."""

SHORT: Final = 512
FEW: Final = 12

_ABSOLUTE = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/?#\\]*)", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:", re.ASCII)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)


def canonicalise(policy: Policy, request: Request, backend: str | None = None) -> CanonicalRequest:
    """Return the canonical form of `request`. `backend` is given if it is already known, as after a redirect.

    Small requests without a body are cached: pages repeat them.
    """
    if request.body or len(request.url) > SHORT or len(request.headers) > FEW or request.method == WEBSOCKET:
        return _worked_out(policy, request, backend)
    # A key of plain tuples and strings, compared in C; `Request` objects are not.
    facts = request.method, request.url, request.headers, request.body_type, request.redirect, request.timeout, backend
    forms = policy.forms
    form = forms.get(facts)
    if form is None:
        form = _worked_out(policy, request, backend)
        if len(forms) >= REMEMBERED:
            forms.clear()
        forms[facts] = form
    return form


def _worked_out(policy: Policy, request: Request, backend: str | None) -> CanonicalRequest:
    return next(filter(None, canonicalise_in_steps(policy, request, backend)))


def canonicalise_in_steps(
    policy: Policy, request: Request, backend: str | None = None
) -> Generator[CanonicalRequest | None, None, None]:
    """Canonicalise in steps: no step over a large body takes more than a millisecond.

    Yields None for each step, then the request.
    """
    try:
        yield (yield from _canonicalising(policy, request, backend))
    except ValueError as error:
        raise Refusal(Reason.BAD_REQUEST, str(error)) from error


def _canonicalising(policy: Policy, request: Request, backend: str | None) -> Generator[None, None, CanonicalRequest]:
    opens_socket = request.method.upper() == WEBSOCKET
    method = "GET" if opens_socket else request.method
    if method not in METHODS:
        method = canonical_method(method)
    if opens_socket:
        _check_protocols(request.protocols)
    meant, path, query = target(policy, request.url)
    path = paths.canonical_path(path)
    if query:  # the backend is already known if a backend wrote the query
        query = paths.canonical_query(query) if backend is None else paths.query_of_backend(query)
    backend = backend or meant or policy.only_backend
    if "%" in path:
        _check_ambiguous(policy, path)
    if backend is None:
        route = policy.routes.find(method, path, None)
        backend = (route.backend if route else None) or ""
    headers = filter_request_headers(request.headers)
    bodiless = method in ("GET", "HEAD")
    body = b"" if bodiless else request.body
    if method == "POST" and (place := (yield from method_override(query, headers, body))):
        raise ValueError(f"_method in the {place} is refused: send the method that you mean")
    body_type, json = BodyType.NONE if bodiless else request.body_type, None
    if body and policy.reads_body:
        route = policy.routes.find(method, path, backend)
        if route is not None and route.reads_body:
            _check_size(route, body)
            body, json = canonical_json(headers, body, body_type)
            body_type = BodyType.JSON
    return CanonicalRequest(
        method=method,
        path=path,
        query=query,
        headers=headers,
        body=body,
        body_type=body_type,
        backend=backend,
        redirect=request.redirect,
        timeout=request.timeout,
        json=json,
        protocols=request.protocols if opens_socket else None,
        once=request.once if opens_socket else "",
    )


def _check_protocols(protocols: Sequence[str]) -> None:
    """Refuse subprotocols that no browser would ask for (RFC 6455, 4.1)."""
    if len(protocols) > PROTOCOLS:
        raise ValueError(f"protocols: {len(protocols)} subprotocols: at most {PROTOCOLS} are taken")
    for protocol in protocols:
        if not is_protocol(protocol):
            raise ValueError(f"protocols: {protocol[:40]!a} is not a subprotocol: send a word")
    if len({protocol.lower() for protocol in protocols}) != len(protocols):
        raise ValueError("protocols: a subprotocol is named twice")


def _check_size(route: Route, body: bytes) -> None:
    """Refuse a body before parsing it if it is too large."""
    limit = route.decision.obligations.request_limit
    if len(body) > limit:
        raise Refusal(Reason.REQUEST_TOO_LARGE, f"The body has {len(body)} bytes; {limit} are allowed here.")
    if is_bulky(body, MOST):
        raise Refusal(Reason.REQUEST_TOO_LARGE, f"A rule reads this body, and it has {why(MOST)}.")


def canonical_method(method: str) -> str:
    """Return the method in upper case. Raises ValueError."""
    if not _TOKEN.fullmatch(method):
        raise ValueError(f"method: {method[:40]!r} is not an HTTP method: send a word such as GET")
    upper = method.upper()
    if upper not in METHODS:
        raise ValueError(
            f"method: {upper[:40]} is not one of the methods of policies: use {', '.join(sorted(METHODS))}"
        )
    return upper


def target(policy: Policy, url: str) -> tuple[str | None, str, str]:
    """Return the backend that the URL names (or None), path and query, without the fragment."""
    if len(url) > MAX_URL:
        raise ValueError(f"url: longer than {MAX_URL} characters")
    backend = None
    if not url.startswith("/") or url.startswith(("//", "/\\")):
        backend, url = _absolute(policy, url)
    path, _, query = url.partition("#")[0].partition("?")
    return backend, path, query


def _absolute(policy: Policy, url: str) -> tuple[str, str]:
    match = _ABSOLUTE.match(url)
    if match is None:
        raise ValueError(f"url: {url[:80]!r} {_relative_remedy(url)}")
    scheme, authority = match[1], match[2]
    if "@" in authority:
        raise ValueError("url: a user name or password in the URL is refused: leave it out")
    origin = canonical_origin(scheme, authority) if authority.isascii() else f"{scheme}://{authority}"
    backend = policy.origins.get(origin)
    if backend is None:
        raise Refusal(
            Reason.POLICY_DENIED,
            f"no backend of the policy has the origin {ascii(origin[:80])[1:-1]}: "
            "send a path such as /api/…, or add the origin to `origins` of the backend that it means",
        )
    rest = url[match.end() :]
    return backend, rest if rest.startswith(("/", "\\")) else f"/{rest}"


def _relative_remedy(url: str) -> str:
    if not url:
        return "is empty: send a path such as /api/…"
    if url.startswith(("//", "/\\", "\\")):
        return "names a host without a scheme: send a path such as /api/…"
    if _SCHEME.match(url):
        return "is not a URL of a backend: send a path such as /api/…"
    return 'must start with "/": send a path such as /api/…'


def _check_ambiguous(policy: Policy, path: str) -> None:
    opaque = tuple(opaque_segments(path))
    if opaque and not policy.routes.matching(path):
        raise ValueError(f"the path has the ambiguous segment {opaque[0][:80]}: {paths.ENCODED_REMEDY}")
    for segment in opaque:
        paths.check_opaque(segment)
