"""Who the callers of one configuration are under another one."""

from __future__ import annotations

import time
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest
from multidict import CIMultiDict

from gateway.callers.entitlements import OWN, Recognition
from gateway.callers.issuer_tokens import of_access_token
from gateway.callers.methods import Method, NoAuth, OAuthIssuer, ProxyAuth, Roles, TokenAuth
from gateway.callers.people import person_on_site
from gateway.doors.access import Access, Site
from gateway.doors.guard import GuardedRequest
from gateway.doors.identify import CallerRules, CallPlace, Identify
from gateway.errors import Unidentified
from gateway.model import LOCAL, Json, Principal
from gateway.policy import Network
from gateway.stores.sessions import DatabaseSessions, IssuedTokens
from gateway.stores.sql import Database

NOW = 1000.0
PUBLIC = "https://mcp.example"
ISSUER = OAuthIssuer(
    issuer="https://login.example",
    audience=("us", "them"),
    algorithms=("RS256", "ES256"),
    scope=(),
    roles_claim="roles",
    client_id="console",
    client_secret=None,
    login_scope=(),
    introspection=True,
    skew=30.0,
    session=3600.0,
    logout_there=True,
    network=Network(),
    view_clients=frozenset({"desk"}),
)
PROXY = ProxyAuth("front", "x-user", None, (ip_network("10.0.0.0/24"),))
WIDE = replace(PROXY, proxies=(*PROXY.proxies, ip_network("10.9.0.0/24")))
METHODS = (ISSUER, PROXY, TokenAuth(), NoAuth())
CLAIMS: dict[str, Json] = {
    "iss": ISSUER.issuer,
    "aud": ["us", f"{PUBLIC}/mcp/pay"],
    "sub": "ann",
    "client_id": "desk",
    "exp": 2000,
    "roles": ["staff", "boss"],
    "scope": "cart",
}
ROLES = Roles(approver=frozenset({"boss"}))
JWT = of_access_token(ISSUER, ROLES, CLAIMS, frozenset(), NOW)
OPAQUE = replace(JWT, proof="introspected:abc")
LOGIN = replace(JWT, session=True, client="console", capabilities=frozenset({"bridge", "app", "approve"}))
VISIT = person_on_site(LOGIN, "cart")
TOKEN = Principal("local", "token:desk", "ann", capabilities=frozenset({"mcp"}), expires=2000.0, proof="token:1")
LINKED = replace(LOCAL, expires=2000.0, proof="session:1", capabilities=LOCAL.capabilities - {"mcp"})
PERSON = Principal("proxy:front", "proxy", "ann", frozenset({"staff"}), ROLES.capabilities(frozenset({"staff"})))
ALL = {
    "jwt": JWT,
    "opaque": OPAQUE,
    "login": LOGIN,
    "visit": VISIT,
    "token": TOKEN,
    "link": LINKED,
    "proxy": PERSON,
    "local": LOCAL,
}
OAUTH = {"jwt", "opaque", "login", "visit"}


def remaining_callers(
    methods: tuple[Method, ...], roles: Roles = ROLES, needs: str = "", before: tuple[Method, ...] = METHODS
) -> set[str]:
    """The names of the callers that stay."""
    found = Recognition(before, methods, roles, PUBLIC)
    return {name for name, principal in ALL.items() if found.keeps(principal, needs, NOW)}


def issuer(**changes: object) -> tuple[Method, ...]:
    """The methods, with other settings of the issuer."""
    return (replace(ISSUER, **changes), *METHODS[1:])  # type: ignore[arg-type]  # of one field each


CASES: list[tuple[str, tuple[Method, ...], set[str]]] = [
    ("nothing", METHODS, set()),
    ("issuer", METHODS[1:], OAUTH),
    ("another-issuer", issuer(issuer="https://other.example"), OAUTH),
    ("proxy", (ISSUER, TokenAuth(), NoAuth()), {"proxy"}),
    ("proxy-address", (replace(PROXY, proxies=(ip_network("10.0.0.0/25"),)), *METHODS[2:], ISSUER), {"proxy"}),
    ("proxy-header", (replace(PROXY, header="x-person"), *METHODS[2:], ISSUER), {"proxy"}),
    ("more-proxies", (WIDE, *METHODS[2:], ISSUER), set()),
    ("tokens", (ISSUER, PROXY, NoAuth()), {"token", "link"}),
    ("none", METHODS[:3], {"local"}),
    ("audience", issuer(audience=("them",)), set()),  # the token is for a mount, too
    ("scope", issuer(scope=("cart", "admin")), {"jwt", "opaque"}),
    ("algorithm", issuer(algorithms=("ES256",)), {"jwt"}),
    ("introspection", issuer(introspection=False), {"opaque"}),
    ("roles-claim", issuer(roles_claim="groups"), set()),  # no role is needed
    ("view-clients", issuer(view_clients=frozenset()), {"jwt", "opaque"}),
    ("secret-and-session", issuer(client_id="other", session=60.0, logout_there=False), set()),
]


@pytest.mark.parametrize(("methods", "lost"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_change_of_auth_ends_whom_it_no_longer_lets_in(methods: tuple[Method, ...], lost: set[str]) -> None:
    """Everybody else stays."""
    assert remaining_callers(methods) == set(ALL) - lost


def test_an_audience_that_only_the_old_settings_accepted_ends_its_tokens() -> None:
    """Also if a token names the address of another gateway."""
    token = of_access_token(ISSUER, ROLES, {**CLAIMS, "aud": ["us", "https://else.example/mcp"]}, frozenset(), NOW)
    changed = Recognition(METHODS, issuer(audience=("them",)), ROLES, PUBLIC)
    assert not changed.keeps(token, "", NOW)


def test_a_lost_capability_ends_what_needs_it_and_nothing_else() -> None:
    """Callers of `/mcp` never had `approve`; a site needs only its app."""
    less = Roles(user=frozenset({"staff"}))
    assert remaining_callers(METHODS, less) == set(ALL) - {"login"}
    assert remaining_callers(METHODS, less, "bridge") == set(ALL)
    guests = Roles(user=frozenset({"guests"}))
    assert remaining_callers(METHODS, guests, "app") == {"token", "link", "local"}
    assert remaining_callers(METHODS, guests, "approve") == set(ALL) - {"login"}


def test_the_gateway_itself_is_always_known() -> None:
    """Its own requests to upstreams are nobody's."""
    assert Recognition(METHODS, (TokenAuth(),), ROLES, PUBLIC).keeps(Principal(OWN, "gateway", "x"), "", NOW)


async def test_a_caller_who_is_identified_during_a_reload_is_judged_by_the_new_settings(tmp_path: Path) -> None:
    """Otherwise a stream could be opened after the look at what is open, and stay for ever."""
    old, new = (CallerRules(methods, ROLES, {}) for methods in ((TokenAuth(),), (PROXY,)))
    reads = iter([old, new])
    async with Database(f"sqlite:///{tmp_path / 'gateway.db'}") as database:
        tokens = IssuedTokens(database)
        shown = await tokens.create("desk", ["mcp"], "ann", now=time.time(), expires=time.time() + 900)
        request = GuardedRequest("POST", CIMultiDict({"authorization": f"Bearer {shown.reveal()}"}), "127.0.0.1")
        place = CallPlace(PUBLIC, Site.PLAIN, Access.MCP, None, frozenset())
        sessions = DatabaseSessions(database)
        before = Identify(lambda: old, tokens=tokens, sessions=sessions)
        assert (await before.principal(request, place)).client == "token:desk"
        during = Identify(lambda: next(reads, new), tokens=tokens, sessions=sessions)
        with pytest.raises(Unidentified):
            await during.principal(request, place)
