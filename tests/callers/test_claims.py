"""Claims and logins, without a network: the parts of a principal, and the binding of a login to its browser."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gateway.callers.issuer_requests import Metadata, logout_url
from gateway.callers.issuer_requests import read_metadata as asked_for
from gateway.callers.issuer_tokens import of_access_token, of_id_token, roles_in
from gateway.callers.methods import OAuthIssuer, Roles
from gateway.callers.people import (
    CLAIMS,
    LoginAttempt,
    person_on_console,
    principal_fields,
    principal_of,
    start_attempt,
    without_console_rights,
)
from gateway.credentials import ALGORITHMS
from gateway.doors.issuers import EARLY_FETCH_SPACING, EARLY_FETCHES, FRESH, PAUSE, STALE, Freshness
from gateway.errors import Unidentified
from gateway.model import LOCAL, Principal
from gateway.policy import Network

KEY = b"k" * 32
SPEC = OAuthIssuer(
    issuer="https://i.test",
    audience=("https://g.test",),
    algorithms=ALGORITHMS,
    scope=(),
    roles_claim="realm_access.roles",
    client_id="console",
    client_secret=None,
    login_scope=("openid",),
    introspection=False,
    skew=30.0,
    session=3600.0,
    logout_there=True,
    network=Network(public=True),
)
ROLES = Roles(user=frozenset({"staff"}), approver=frozenset({"ops"}), admin=frozenset({"root"}))
GOOD: dict[str, Any] = {"iss": "https://i.test", "aud": "https://g.test", "sub": "a", "client_id": "c", "exp": 1000}
LOGIN: dict[str, Any] = {"iss": "https://i.test", "aud": "console", "sub": "a", "exp": 1000, "nonce": "n"}


def test_roles_lie_where_the_claim_says() -> None:
    """A whole claim name wins over a path with dots; a text is split at spaces; other values contain no roles."""
    assert roles_in({"realm_access": {"roles": ["a", 1, "b"]}}, "realm_access.roles") == {"a", "b"}
    assert roles_in({"realm_access.roles": ["c"], "realm_access": {"roles": ["a"]}}, "realm_access.roles") == {"c"}
    assert roles_in({"roles": "a b"}, "roles") == {"a", "b"}
    assert roles_in({"realm_access": ["roles"]}, "realm_access.roles") == frozenset()


def test_a_token_counts_for_as_long_as_it_is_accepted() -> None:
    """What it opened within the tolerance for clocks is not ended as expired."""
    assert of_access_token(SPEC, Roles(), {**GOOD, "exp": -29}, frozenset(), 0.0).expires == 1.0


def test_a_token_of_its_own_client_has_nobody_behind_it() -> None:
    """The subject is the client then (RFC 9068 2.2)."""
    found = of_access_token(SPEC, Roles(), {**GOOD, "sub": "c"}, frozenset(), 0.0)
    assert (found.shared, found.subject, found.client) == (True, "", "c")


def test_access_tokens_never_answer_or_administer() -> None:
    """Any roles have no effect there; on the console the same roles do."""
    claims = {**GOOD, "realm_access": {"roles": ["staff", "ops", "root"]}}
    token = of_access_token(SPEC, ROLES, claims, frozenset(), 0.0)
    assert token.capabilities == {"mcp", "bridge", "app", "audit:read"}
    person = person_on_console(
        of_id_token(SPEC, {**LOGIN, **{"realm_access": claims["realm_access"]}}, "n", 0.0), [SPEC], ROLES
    )
    assert person.capabilities == {"bridge", "app", "audit:read", "approve", "admin"}
    assert without_console_rights(person).capabilities == {"bridge", "app", "audit:read"}
    assert not without_console_rights(LOCAL).may("approve")


def test_an_id_token_opens_no_door() -> None:
    """An ID token is refused as an access token, even if the gateway's client is its audience."""
    spec = replace(SPEC, audience=("console",))
    claims = {**GOOD, "aud": "console"}
    assert of_access_token(spec, Roles(), claims, frozenset(), 0.0).subject == "a"
    with pytest.raises(Unidentified, match="ID token"):
        of_access_token(spec, Roles(), {**claims, "nonce": "n"}, frozenset(), 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"aud": "other"},
        {"aud": ["console", "other"]},
        {"aud": ["console"], "azp": "other"},
        {"azp": ""},
        {"aud": None},
        {"iss": None},
        {"exp": None},
        {"exp": "1000"},
        {"exp": True},
        {"nbf": 31},
        {"sub": 5},
        {"nonce": "m"},
        {"nonce": None},
        {"iss": "https://j.test"},
        {"exp": -31},
        {"sub": ""},
        {"sub": None},
        {"iat": 31},
    ],
)
def test_an_id_token_is_for_this_login_alone(wrong: dict[str, Any]) -> None:
    """The checks of OpenID Connect Core 3.1.3.7 apply."""
    with pytest.raises(Unidentified):
        of_id_token(SPEC, {**LOGIN, **wrong}, "n", 0.0)


@pytest.mark.parametrize(
    "unusual",
    [
        {"amr": "pwd"},
        {"auth_time": "900"},
        {"acr": None, "nbf": None, "azp": None},
        {"aud": ["console"]},
        {"aud": ["console", "other"], "azp": "console"},
        {"at_hash": 5},
        {"exp": -29},
        {"iat": 29},
    ],
)
def test_an_id_token_may_be_unusual(unusual: dict[str, Any]) -> None:
    """Some servers send such claims; none of them changes for whom and until when the token is."""
    assert of_id_token(SPEC, {**LOGIN, **unusual}, "n", 0.0).subject == "a"


def test_a_login_of_a_method_that_is_gone_is_none() -> None:
    """The configuration may have changed since the login."""
    with pytest.raises(Unidentified):
        person_on_console(Principal("https://old.test", "console", "a", session=True), [SPEC], ROLES)


def test_an_attempt_is_read_back_from_its_cookie_alone() -> None:
    """A cookie that is altered, too old, from the future, or from another gateway is not accepted."""
    begun = start_attempt(KEY, "0", "/#/apps/cart", 1000.0)
    again = LoginAttempt.of(begun.cookie, KEY, 1300.0, 600.0)
    assert again is not None
    assert (again.to, again.state, again.nonce, again.verifier) == (begun.to, begun.state, begun.nonce, begun.verifier)
    assert len({begun.state, begun.nonce, begun.verifier}) == 3
    assert 43 <= len(begun.verifier) <= 128
    changed = begun.cookie.replace(".0.", ".1.")
    for cookie, key, now in (
        (changed, KEY, 1300.0),
        (begun.cookie, b"x" * 32, 1300.0),
        (begun.cookie, KEY, 1601.0),
        (begun.cookie, KEY, 900.0),
        ("", KEY, 1300.0),
        (None, KEY, 1300.0),
        ("a.b.c.d.e", KEY, 1300.0),
    ):
        assert LoginAttempt.of(cookie, key, now, 600.0) is None


def test_nobody_else_can_make_the_state() -> None:
    """The state requires the cookie and the key."""
    begun = start_attempt(KEY, "0", "/", 0.0)
    assert begun.has_state(begun.state)
    assert not begun.has_state("")
    assert not begun.has_state(start_attempt(KEY, "0", "/", 0.0).state)


def test_an_issuer_is_asked_seldom() -> None:
    """Metadata are cached for ten minutes; early fetches are limited, and failures are followed by a pause."""
    fresh = Freshness()
    assert fresh.is_due(0.0)
    fresh.record_answer(0.0)
    assert not fresh.is_due(FRESH - 1)
    assert fresh.is_due(FRESH)
    assert [fresh.take_early_fetch(1.0) for _ in range(EARLY_FETCHES + 1)] == [True] * EARLY_FETCHES + [False]
    assert not fresh.take_early_fetch(EARLY_FETCH_SPACING)
    assert [fresh.take_early_fetch(1.0 + EARLY_FETCH_SPACING) for _ in range(2)] == [True, False]
    assert [fresh.take_early_fetch(FRESH - 1) for _ in range(EARLY_FETCHES + 1)] == [True] * EARLY_FETCHES + [False]
    fresh.record_failure(FRESH)
    assert not fresh.is_due(FRESH + PAUSE - 1)
    assert not fresh.take_early_fetch(FRESH + PAUSE - 1)
    assert fresh.is_usable(STALE - 1)
    assert not fresh.is_usable(STALE)


@pytest.mark.parametrize("hint", ["a.b.c", None])
@pytest.mark.parametrize("place", ["https://i.test/end", "https://i.test/end?x=1"])
def test_a_logout_goes_on_to_the_issuer(place: str, hint: str | None) -> None:
    """The URL has the ID token as hint, if known, and the address to return to."""
    url = logout_url(SPEC, metadata(end_session=place), hint, "https://g.test/login/out")
    assert url is not None
    assert url.startswith(place)
    said = parse_qs(urlsplit(url).query)
    assert said.get("id_token_hint") == ([hint] if hint else None)
    assert (said["client_id"], said["post_logout_redirect_uri"]) == (["console"], ["https://g.test/login/out"])


def test_a_logout_may_stay_here() -> None:
    """The issuer may have no logout endpoint, or gateway.yaml disables its use."""
    assert logout_url(SPEC, metadata(end_session=None), None, "https://g.test/login/out") is None
    alone = replace(SPEC, logout_there=False)
    assert logout_url(alone, metadata(end_session="https://i.test/end"), None, "https://g.test/login/out") is None


def metadata(**more: Any) -> Metadata:
    """The metadata of an issuer."""
    said: dict[str, Any] = {field.name: None for field in fields(Metadata)}
    return Metadata(**{**said, "post_only": False, "names_itself": False, **more})


@pytest.mark.parametrize(
    "issuer", ["http://i.test", "https://i.test/?tenant=1", "https://u@i.test", "https://i.test/#a"]
)
def test_an_issuer_that_others_could_speak_for_is_not_asked(issuer: str) -> None:
    """Neither plain http, nor an address that is shared with others is accepted (RFC 8414 2)."""
    with pytest.raises(Unidentified, match="not at an https URL"):
        next(asked_for(replace(SPEC, issuer=issuer)))
    assert next(asked_for(SPEC)).url == "https://i.test/.well-known/oauth-authorization-server"


def test_a_login_keeps_no_more_claims_than_it_may() -> None:
    """Claims over the limit are left out completely; the rest of the principal stays."""
    room = CLAIMS - len('{"a": ""}')
    for size, kept in ((room, True), (room + 1, False)):
        claims = {"a": "x" * size}
        found = principal_of(
            principal_fields(Principal("i", "c", "s", roles=frozenset({"r"}), claims=claims)), 7.0, "p"
        )
        assert found.claims == (claims if kept else {})
        assert (found.subject, found.roles, found.expires, found.proof) == ("s", frozenset({"r"}), 7.0, "p")
