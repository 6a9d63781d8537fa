"""Redirects inside the policy: the target of an answer becomes a request that is decided anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from msgspec.structs import replace

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.exchange.decided_request import BackendAnswer, DecidedRequest
from gateway.exchange.filter import SecretRedactor
from gateway.exchange.page_tokens import FIELD as AUTHORIZATION
from gateway.model import BodyType, Redirect, Request
from gateway.policy import (
    SAFE_METHODS,
    Policy,
    Redirects,
    RedirectTarget,
    leads_nowhere,
    location_for_app,
    redirect_location,
    without,
)
from gateway.policy.paths import has_lone_percent

HOPS = 20
"""Redirects that are followed for one request, as browsers do (Fetch, HTTP-redirect fetch, step 7)."""

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "followed redirects",
        f"{HOPS}, each of which counts as a request",
        "`redirect-broken`",
    ),
)

(FOLLOWED,) = BOUNDS

_MOVED = (301, 302, 303, 307, 308)
_SAME_METHOD = (307, 308)


@dataclass(frozen=True, slots=True)
class Hop:
    """The next request, and its backend."""

    request: Request
    backend: str


def next_hop(policy: Policy, decided_request: DecidedRequest, answer: BackendAnswer) -> Hop | None:
    """Return the redirect of `answer`; None if it is the final answer, or its client follows it itself.

    Raises `Refusal` (`redirect-denied`, `redirect-broken`).

    The method changes as in Fetch (HTTP-redirect fetch, step 12). An unsafe one is repeated only for 307 and 308, and
    only if the route allows it.
    """
    response, request = answer.response, decided_request.request
    if response.status not in _MOVED:
        return None
    if len({value for name, value in response.headers if name == "location"}) > 1:
        raise redirect_broken("The backend redirects to several places at once.")
    if request.redirect is Redirect.MANUAL:
        return None
    location = response.header("location")
    if not location:  # as in browsers
        return None
    if request.redirect is Redirect.ERROR:
        raise denial("The backend redirects, and the app asked for an error then.")
    if decided_request.obligations.redirects is Redirects.NONE:
        raise denial("The backend redirects, and this route follows no redirects.")
    if leads_nowhere(policy, decided_request.canonical, location):
        raise redirect_broken("The backend redirects to an invalid HTTP URL.")
    place = redirect_location(policy, decided_request.canonical, location)
    for text in (unquote(location), unquote(place.url) if place is not None else ""):
        if SecretRedactor(answer.secrets).text(text) != text:
            raise denial("The backend redirects to an address that holds a credential.")
    if place is None:
        raise denial("The backend redirects to a place outside of the policy.")
    if _downgrades(policy, decided_request.canonical.backend, place.backend):
        raise denial("The backend redirects from https to http.")
    if place.backend != decided_request.canonical.backend:  # as browsers at another origin (Fetch, HTTP-redirect fetch)
        request = replace(request, headers=without(request.headers, (AUTHORIZATION,)))
    method = _method(decided_request.canonical.method, response.status)
    if method in SAFE_METHODS:
        if request.leads and _can_be_asked_for(policy, decided_request, location):
            return None
        next_request = replace(request, method=method, url=place.url)
        return Hop(
            next_request if method == decided_request.canonical.method else _without_body(next_request), place.backend
        )
    if response.status not in _SAME_METHOD or decided_request.obligations.redirects is not Redirects.SAME_ROUTE:
        raise denial(f"The backend redirects a {method}; it is not sent to another place.")
    if (
        request.leads
        and _may_be_repeated(policy, decided_request, place)
        and _can_be_asked_for(policy, decided_request, location)
    ):
        return None
    return Hop(replace(request, method=method, url=place.url), place.backend)


def _can_be_asked_for(policy: Policy, decided_request: DecidedRequest, location: str) -> bool:
    """Return whether the client can request the target itself, which is decided on then, as its URL is unchanged."""
    location_shown = location_for_app(policy, decided_request.canonical, location)
    is_shown = location_shown is not None and "location" in decided_request.obligations.response_headers
    return is_shown and not has_lone_percent((location_shown or "").partition("?")[2])


def _may_be_repeated(policy: Policy, decided_request: DecidedRequest, place: RedirectTarget) -> bool:
    """Return whether `continue_at` allows an unsafe request at `place`, and it needs no idempotency key of this one."""
    method, path = decided_request.canonical.method, place.url.partition("?")[0]
    route = policy.routes.find(method, path, place.backend)
    if route is None or (place.backend, route.template.text) != (
        decided_request.canonical.backend,
        decided_request.decision.route,
    ):
        return False
    return decided_request.obligations.confirm is None and decided_request.key is None


def continue_at(source: DecidedRequest, target: DecidedRequest) -> DecidedRequest:
    """Return the request that follows `source`; a repeated unsafe request keeps its idempotency key.

    Raises `Refusal` (`redirect-denied`) if the target needs an approval, or is an unsafe request outside of the route.
    """
    if target.obligations.confirm is not None:
        raise denial("The backend redirects to a place that needs an approval.")
    if target.canonical.method in SAFE_METHODS:
        return target
    places = [(one.canonical.backend, one.decision.route) for one in (source, target)]
    if places[0] != places[1]:
        raise denial(f"The backend redirects a {target.canonical.method} out of its route.")
    return replace(target, key=source.key)


def _without_body(request: Request) -> Request:
    headers = tuple(pair for pair in request.headers if not pair[0].lower().startswith("content-"))
    return replace(request, headers=headers, body=b"", body_type=BodyType.NONE)


def _method(method: str, status: int) -> str:
    if status == 303 and method != "HEAD":
        return "GET"
    return "GET" if status in (301, 302) and method == "POST" else method


def _downgrades(policy: Policy, source: str, target: str) -> bool:
    return policy.backends[source].url.startswith("https:") and policy.backends[target].url.startswith("http:")


def redirect_broken(detail: str) -> Refusal:
    """Return the refusal of a redirect that no browser follows either."""
    return Refusal(Reason.REDIRECT_BROKEN, detail)


def denial(detail: str) -> Refusal:
    """Return the refusal of a redirect that is not followed."""
    return Refusal(Reason.REDIRECT_DENIED, detail)
