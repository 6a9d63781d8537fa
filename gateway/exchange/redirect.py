"""Redirects inside the policy: where an answer leads, as a request of its own that is decided anew."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gateway.errors import Reason, Refusal
from gateway.model import BodyType, CanonicalRequest, Redirect, Request, Response
from gateway.policy import SAFE_METHODS, Policy, landing

HOPS = 5
"""Redirects that are followed for one request."""

_MOVED = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Hop:
    """What is asked next, and of which backend."""

    request: Request
    backend: str


def following(policy: Policy, request: Request, canonical: CanonicalRequest, response: Response) -> Hop | None:
    """Where `response` leads; None where it is the answer. Raises `Refusal` (`redirect-denied`).

    The method changes as in Fetch (HTTP-redirect fetch, step 12); an unsafe one is never repeated.
    """
    location = response.header("location")
    if response.status not in _MOVED or location is None or request.redirect is Redirect.MANUAL:
        return None
    if request.redirect is Redirect.ERROR:
        raise _denied("The backend redirects, and the app asked for an error then.")
    place = landing(policy, canonical, location)
    if place is None:
        raise _denied("The backend redirects to a place outside of the policy.")
    if _downgrades(policy, canonical.backend, place.backend):
        raise _denied("The backend redirects from https to http.")
    method = _method(canonical.method, response.status)
    if method not in SAFE_METHODS:
        raise _denied(f"The backend redirects a {method}; it is not sent to another place.")
    kept = tuple(pair for pair in request.headers if not pair[0].lower().startswith("content-"))
    return Hop(
        replace(request, method=method, url=place.url, headers=kept, body=b"", body_type=BodyType.NONE), place.backend
    )


def _method(method: str, status: int) -> str:
    if status == 303 and method != "HEAD":
        return "GET"
    return "GET" if status in (301, 302) and method == "POST" else method


def _downgrades(policy: Policy, source: str, target: str) -> bool:
    return policy.backends[source].url.startswith("https:") and policy.backends[target].url.startswith("http:")


def _denied(detail: str) -> Refusal:
    return Refusal(Reason.REDIRECT_DENIED, detail)
