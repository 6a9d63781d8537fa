"""Token exchange (RFC 8693): a request of the back end of a host page, its client, and the rights of its person."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import parse_qsl, unquote_plus

from gateway.callers.entitlements import Admits
from gateway.callers.issuer_tokens import check_times, parse_token, public_keys, texts, verify
from gateway.callers.methods import HostSite
from gateway.credentials import ALGORITHMS
from gateway.errors import Unidentified
from gateway.jsontext.reading import parse_json
from gateway.model import Json, Principal

GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  the name of a kind of tokens
JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

LIFE: Final = 300.0
"""Seconds for which an exchanged token is valid, unless that of its person ends earlier."""

PREFIX: Final = "wmh_"
"""The beginning of every exchanged token, by which the other doors refuse it without asking an issuer."""

SCOPE: Final = "bridge:"
"""The beginning of a scope; the name of an app or an upstream follows."""

LONGEST_ASSERTION: Final = 330.0
"""Seconds that an assertion of a client may be valid from now on."""

_PARAMETERS: Final = 32
_KNOWN: Final = (
    *("grant_type", "subject_token", "subject_token_type", "requested_token_type", "scope", "resource", "audience"),
    *("client_id", "client_secret", "client_assertion", "client_assertion_type", "actor_token", "actor_token_type"),
)
_REPEATABLE: Final = ("resource", "audience")


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """The parameters of a valid request: the person's token, and the names of apps, empty for all."""

    subject_token: str
    apps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assertion:
    """A client's signed assertion: its id, which is valid once, until `ends` (seconds since the epoch)."""

    client: str
    id: str
    ends: float


def read_form(body: bytes) -> dict[str, str]:
    """Return the parameters of a token request (RFC 6749 3.2). Raises `Unidentified` (`invalid_request`).

    Those of `_REPEATABLE` that occur several times are one text here, with a space between two (RFC 8693 2.1).
    """
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            max_num_fields=_PARAMETERS,
            errors="strict",
        )
    except ValueError:
        raise invalid("The body must be application/x-www-form-urlencoded, in UTF-8.") from None
    form = dict[str, str]()
    for name, value in pairs:
        if name in form and name not in _REPEATABLE:
            raise invalid("A parameter occurs twice.")
        form[name] = f"{form[name]} {value}".strip() if name in form else value
    return {name: value for name, value in form.items() if value and name in _KNOWN}


def authenticate(
    form: Mapping[str, str],
    authorization: Sequence[str],
    sites: Collection[HostSite],
    audiences: Collection[str],
    now: float,
    unused: Callable[[Assertion], bool],
) -> HostSite:
    """Return the host site whose back end sends `form` (RFC 6749 2.3, RFC 7523 2.2).

    `authorization` are the fields of that name, `audiences` what an assertion may be for; `unused` marks an assertion
    as used, and returns whether it was not before. Raises `Unidentified`: `invalid_client` if there is no
    authentication, or it fails, and `invalid_request` if there are several (RFC 6749 5.2).
    """
    ways = len(authorization) + ("client_secret" in form) + ("client_assertion" in form)
    if ways != 1:
        detail = "A client authenticates in one way: client_secret_basic, client_secret_post or private_key_jwt."
        raise invalid(detail) if ways else _unknown_client(detail)
    if "client_assertion" in form:
        return _by_assertion(form, sites, audiences, now, unused)
    id, secret = _basic(authorization[0]) if authorization else (form.get("client_id", ""), form["client_secret"])
    if authorization and form.get("client_id", id) != id:
        raise invalid("`client_id` is not that of the authentication.")
    site = _site(sites, id)
    known = site.client_secret.reveal() if site is not None and site.client_secret is not None else ""
    if not hmac.compare_digest(known.encode(), secret.encode("utf-8", "surrogatepass")) or not known or site is None:
        raise _unknown_client()
    return site


def _by_assertion(
    form: Mapping[str, str],
    sites: Collection[HostSite],
    audiences: Collection[str],
    now: float,
    unused: Callable[[Assertion], bool],
) -> HostSite:
    if form.get("client_assertion_type") != ASSERTION:
        raise _unknown_client(f"`client_assertion_type` must be {ASSERTION}.")
    token = parse_token(form["client_assertion"])
    site = _site(sites, token.claims.get("sub")) if token is not None else None
    if token is None or site is None or not site.jwks:
        raise _unknown_client()
    if form.get("client_id", site.client_id) != site.client_id:
        raise invalid("`client_id` is not that of the assertion.")
    keys = parse_json(site.jwks)
    try:
        claims = verify(token, public_keys(keys if isinstance(keys, dict) else {}), ALGORITHMS)
        ends = check_times(claims, now, 0.0)
    except Unidentified as error:
        raise _unknown_client(error.detail) from error
    id = claims.get("jti")
    if claims.get("iss") != site.client_id or claims.get("sub") != site.client_id:
        raise _unknown_client("`iss` and `sub` of an assertion must be the client's id.")
    if not set(audiences).intersection(texts(claims.get("aud"))):
        raise _unknown_client(f"`aud` of an assertion must be one of {', '.join(audiences)}.")
    if not isinstance(id, str) or not 0 < len(id) <= 256 or ends - now > LONGEST_ASSERTION:
        raise _unknown_client("An assertion needs a `jti`, and is valid for five minutes at most.")
    if not unused(Assertion(str(site.client_id), id, ends)):
        raise _unknown_client("This assertion was used before.")
    return site


def read_request(form: Mapping[str, str], targets: Collection[str]) -> ExchangeRequest:
    """Return what a client asks for (RFC 8693 2.1); `targets` are the gateway's own names. Raises `Unidentified`."""
    if (grant := form.get("grant_type")) != GRANT:
        error = "invalid_request" if grant is None else "unsupported_grant_type"
        raise Unidentified(f"`grant_type` must be {GRANT}.", error, status=400)
    if "subject_token" not in form or "subject_token_type" not in form:
        raise invalid("`subject_token` and `subject_token_type` are needed.")
    if form["subject_token_type"] not in (ACCESS_TOKEN, JWT):
        raise invalid(f"`subject_token_type` must be {ACCESS_TOKEN}: an ID token authorizes no calls.")
    if form.get("requested_token_type", ACCESS_TOKEN) != ACCESS_TOKEN:
        raise invalid(f"`requested_token_type` must be {ACCESS_TOKEN}.")
    if "actor_token" in form or "actor_token_type" in form:
        raise invalid("There is no `actor_token` here: the client itself acts for the person.")
    for name in ("resource", "audience"):
        if not set(form.get(name, "").split(" ")) <= {"", *targets}:
            raise Unidentified(f"`{name}` must be {' or '.join(targets)}.", "invalid_target", status=400)
    scope = form.get("scope", "").split()
    if not all(one.startswith(SCOPE) and len(one) > len(SCOPE) for one in scope):
        raise Unidentified(f"A scope is {SCOPE}<app>.", "invalid_scope", status=400)
    return ExchangeRequest(form["subject_token"], tuple(one.removeprefix(SCOPE) for one in dict.fromkeys(scope)))


def exchange(site: HostSite, principal: Principal, requested_apps: Sequence[str], admits: Admits) -> Principal:
    """Return the person of a verified token as the pages of `site` may act for them. Raises `Unidentified`.

    It has only `bridge` for the apps that both the site and the person may use.
    """
    claims = principal.claims
    if principal.shared:
        raise invalid("This token belongs to no person.")
    if "act" in claims:
        raise invalid("This token was delegated before: exchange the person's own.")
    if "may_act" in claims and not _names(claims["may_act"], str(site.client_id)):
        raise invalid("`may_act` of this token names another client.")
    unknown = [name for name in requested_apps if name not in site.apps]
    if unknown:
        raise Unidentified(f"This host may not open {', '.join(unknown)[:200]}.", "invalid_scope", status=400)
    names = requested_apps or site.apps
    apps = [name for name in names if principal.may("bridge", name) and admits(principal, name)]
    if not apps or (requested_apps and len(apps) < len(requested_apps)):
        raise Unidentified("The person may not use these apps.", "invalid_scope", status=400)
    return replace(
        principal,
        capabilities=frozenset(f"{SCOPE}{name}" for name in apps),
        claims={**claims, "act": {"sub": site.client_id}},
        session=False,
    )


def actor_of(claims: Mapping[str, Json]) -> str | None:
    """Return the party that acts for the person of a token, by its claim `act` (RFC 8693 4.1), or None."""
    act = claims.get("act")
    actor = act.get("sub") if isinstance(act, dict) else None
    return actor[:200] if isinstance(actor, str) else None


def invalid(detail: str) -> Unidentified:
    """Return the error of a request that is malformed, or whose token of a person is refused (RFC 8693 2.2.2)."""
    return Unidentified(detail, "invalid_request", status=400)


def _unknown_client(detail: str = "No host under `hosts` has this client id and secret.") -> Unidentified:
    return Unidentified(detail, "invalid_client", status=401)


def _site(sites: Collection[HostSite], client: object) -> HostSite | None:
    return next((site for site in sites if site.client_id is not None and site.client_id == client), None)


def _names(may_act: object, client: str) -> bool:
    """Return whether the claim `may_act` names this client, and nothing else that the gateway cannot check."""
    if not isinstance(may_act, dict) or not may_act:
        return False
    return may_act.keys() <= {"sub", "client_id"} and all(value == client for value in may_act.values())


def _basic(field: str) -> tuple[str, str]:
    """Return id and secret of `Authorization: Basic`, each form-encoded (RFC 6749 2.3.1)."""
    scheme, _, encoded = field.partition(" ")
    try:
        id, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        if scheme.lower() != "basic" or not colon:
            raise ValueError(scheme)
        return unquote_plus(id, errors="strict"), unquote_plus(secret, errors="strict")
    except ValueError:
        raise Unidentified("`Authorization` must be `Basic`, with id and secret.", "invalid_client") from None
