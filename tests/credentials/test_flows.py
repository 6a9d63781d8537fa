"""Tests of the other flows of `gateway.credentials`, driven by hand: requests, and hostile answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest

from gateway.credentials import (
    AuthorizationCode,
    Client,
    ClientAuthentication,
    ClientCredentials,
    ConnectAttempt,
    Flow,
    Grant,
    JwtBearer,
    OAuth,
    Server,
    Token,
    TokenExchange,
    authorization_url,
    client_credentials,
    jwt_bearer,
    redeem,
    refresh,
    revoke,
    signing_key,
    token_exchange,
    wants_nonce,
)
from gateway.errors import GrantEnded, Reason, Refusal
from gateway.model import Json, Outbound, Response, Secret
from tests.credentials.house import KEY, PUBLIC
from tests.credentials.test_client_credentials import Everywhere, answer
from tests.leaks.marks import MARK

NOW = 1_800_000_000.0
ISSUER = "https://login.example"
METADATA: dict[str, Json] = {
    "issuer": ISSUER,
    "token_endpoint": f"{ISSUER}/token",
    "authorization_endpoint": f"{ISSUER}/auth",
    "revocation_endpoint": f"{ISSUER}/revoke",
    "code_challenge_methods_supported": ["S256"],
    "authorization_response_iss_parameter_supported": True,
}
EMPTY: dict[str, Json] = {"refresh_token": "", "scope": "", "expires_in": 0}
GOOD: dict[str, Json] = {"access_token": "abc.def", "token_type": "Bearer", "expires_in": 300}
TRIED = ConnectAttempt("state", Secret("v" * 43), "nonce", "https://console.example/oauth/callback", None)

T = TypeVar("T")


def spec(grant: Grant, client: Client | None = None, **more: Any) -> OAuth:
    client = client or Client("gateway", Secret(f"a-client-secret-{MARK}"))
    return OAuth("shop", grant, Server(ISSUER, Everywhere()), client, ("cart",), **more)


def drive(flow: Flow[T], *answers: Response) -> tuple[T, list[Outbound]]:
    """Run the flow; return its result and the requests."""
    requests = [next(flow)]
    for given in answers:
        try:
            requests.append(flow.send(given))
        except StopIteration as stop:
            result: T = stop.value
            return result, requests
    raise AssertionError(f"the flow asks for more: {requests[-1].url}")


def form(request: Outbound) -> dict[str, str]:
    return {key: value for key, (value,) in parse_qs(request.body.decode()).items()}


def claims(token: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    return found


def id_token(**other: Json) -> str:
    """The ID token of an account; the signature is not checked, since the answer came over TLS."""
    body = {"iss": ISSUER, "aud": "gateway", "sub": "17", "nonce": "nonce", "exp": NOW + 300, "email": "a@b.c"}
    text = base64.urlsafe_b64encode(json.dumps({**body, **other}).encode()).decode().rstrip("=")
    return f"e30.{text}.sig"


def test_private_key_jwt() -> None:
    """Each assertion is new and for this server, and no secret is sent."""
    client = Client("gateway", None, ClientAuthentication.PRIVATE_KEY_JWT, signing_key(Secret(KEY), "kid-1"))
    seen = []
    for _ in range(2):
        _, requests = drive(client_credentials(spec(ClientCredentials(), client), NOW), answer(METADATA), answer(GOOD))
        sent = form(requests[1])
        assert sent["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        told = claims(sent["client_assertion"])
        assert (told["iss"], told["sub"], told["aud"]) == ("gateway", "gateway", ISSUER)
        assert told["exp"] - told["iat"] == 60
        seen.append(told["jti"])
    assert len(set(seen)) == 2


def test_dpop_takes_the_nonce_of_the_server() -> None:
    """The request is repeated once with it, and the token is bound to the key."""
    wants = Response(400, (("content-type", "application/json"), ("dpop-nonce", "n-1")), b'{"error":"use_dpop_nonce"}')
    token, requests = drive(
        client_credentials(spec(ClientCredentials(), dpop=True), NOW),
        answer(METADATA),
        wants,
        answer(GOOD | {"token_type": "DPoP"}),
    )
    proofs = [claims(dict(request.headers)["dpop"]) for request in requests[1:]]
    assert [told.get("nonce") for told in proofs] == [None, "n-1"]
    assert [(told["htm"], told["htu"]) for told in proofs] == [("POST", f"{ISSUER}/token")] * 2
    assert token.key is not None
    assert token.header()[1].startswith("DPoP ")


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ('DPoP error="use_dpop_nonce"', True),
        ('Bearer error="invalid_token", dpop algs="ES256", error = use_dpop_nonce', True),
        ('error="use_dpop_nonce", DPoP', False),
        ('DPoP error="use_dpop_nonces"', False),
        ("dpop " * 800_000, False),  # parsing each of them completely would take hours
        ("dpop" + " error =" * 500_000, False),
    ],
    ids=["alone", "second", "before", "other", "schemes", "errors"],
)
def test_a_resource_asks_for_a_nonce(field: str, wanted: bool) -> None:
    """The challenge is that of RFC 9449, after its scheme; other text is skipped cheaply."""
    assert wants_nonce((("www-authenticate", field),)) is wanted


def test_a_bearer_token_in_place_of_a_bound_one_is_refused() -> None:
    """A server that ignores the proof would issue a token that anyone can use."""
    with pytest.raises(Refusal, match="token_type is not DPoP"):
        drive(client_credentials(spec(ClientCredentials(), dpop=True), NOW), answer(METADATA), answer(GOOD))


def test_authorization_url() -> None:
    """The challenge is sent, the verifier is kept."""
    url, _ = drive(authorization_url(spec(AuthorizationCode()), TRIED), answer(METADATA))
    query = {key: value for key, (value,) in parse_qs(urlsplit(url).query).items()}
    assert url.startswith(f"{ISSUER}/auth?")
    assert (query["code_challenge_method"], query["state"], query["response_type"]) == ("S256", "state", "code")
    assert "v" * 43 not in url


def test_an_authorization_endpoint_keeps_its_query() -> None:
    """RFC 6749 3.1 requires that."""
    places: Json = METADATA | {"authorization_endpoint": f"{ISSUER}/auth?policy=sign%20in&flag"}
    url, _ = drive(
        authorization_url(spec(AuthorizationCode(), resource="https://a.example/b c"), TRIED), answer(places)
    )
    query = parse_qs(urlsplit(url).query, keep_blank_values=True)
    assert (query["policy"], query["flag"], query["resource"]) == (["sign in"], [""], ["https://a.example/b c"])
    assert "nonce" not in query


def test_a_server_without_pkce_is_refused() -> None:
    """Its metadata declare only the method `plain`."""
    plain: Json = METADATA | {"code_challenge_methods_supported": ["plain"]}
    with pytest.raises(Refusal, match="PKCE"):
        drive(authorization_url(spec(AuthorizationCode()), TRIED), answer(plain))


def test_redeem() -> None:
    """The code is sent with its verifier; the account is the one of the ID token."""
    good = GOOD | {"id_token": id_token(), "refresh_token": "r"}
    told = {"code": "c", "state": "state", "iss": ISSUER}
    token, requests = drive(redeem(spec(AuthorizationCode()), TRIED, told, NOW), answer(METADATA), answer(good))
    assert form(requests[1])["code_verifier"] == "v" * 43
    assert token.account is not None
    assert (token.account.subject, token.account.label) == ("17", "a@b.c")


@pytest.mark.parametrize(
    ("told", "reason", "words"),
    [
        ({"code": "c"}, Reason.CREDENTIAL_FAILED, "(iss)"),
        ({"code": "c", "iss": "https://evil.example"}, Reason.CREDENTIAL_FAILED, "(iss)"),
        ({"code": "c", "iss": f"{ISSUER}/"}, Reason.CREDENTIAL_FAILED, "(iss)"),
        ({"error": "access_denied", "iss": ISSUER}, Reason.CREDENTIAL_NEEDED, "access_denied"),
        ({"error": "<b>a-client-secret-k4naRieZq9</b>", "iss": ISSUER}, Reason.CREDENTIAL_NEEDED, "an error"),
        ({"iss": ISSUER}, Reason.CREDENTIAL_FAILED, "no code"),
        ({"code": "c\nd", "iss": ISSUER}, Reason.CREDENTIAL_FAILED, "no code"),
    ],
)
def test_answers_of_the_wrong_server(told: Mapping[str, str], reason: Reason, words: str) -> None:
    """Nothing is sent to a token endpoint for them (RFC 9207)."""
    with pytest.raises(Refusal) as refused:
        drive(redeem(spec(AuthorizationCode()), TRIED, told, NOW), answer(METADATA))
    assert refused.value.reason is reason
    assert words in refused.value.detail
    assert "a-client-secret" not in refused.value.detail


@pytest.mark.parametrize(
    "bad",
    [
        id_token(iss="https://evil.example"),
        id_token(aud="another"),
        id_token(aud=["another"]),
        id_token(aud=["gateway", "another"]),
        id_token(azp="another"),
        id_token(nonce="of another login"),
        id_token(exp=NOW - 600),
        id_token(exp=True),
        id_token(exp=float("nan")),
        id_token(exp="9999999999"),
        id_token(sub=""),
        "not.a.jwt!",
        "e30.W10.sig",
        "a.b",
        17,
    ],
)
def test_id_tokens_that_are_refused(bad: Json) -> None:
    """A token for another audience, or of another login, connects no account."""
    told = {"code": "c", "iss": ISSUER}
    with pytest.raises(Refusal, match="ID token"):
        drive(redeem(spec(AuthorizationCode()), TRIED, told, NOW), answer(METADATA), answer(GOOD | {"id_token": bad}))


def test_a_clock_that_differs_a_little_is_taken() -> None:
    """The tolerance is two minutes."""
    told = {"code": "c", "iss": ISSUER}
    good = answer(GOOD | {"id_token": id_token(exp=NOW - 100)})
    assert drive(redeem(spec(AuthorizationCode()), TRIED, told, NOW), answer(METADATA), good)[0].account is not None


def test_a_server_whose_clock_is_ahead_connects_accounts() -> None:
    """The ID token came from the server itself: its beginning proves nothing."""
    told = {"code": "c", "iss": ISSUER}
    good = answer(GOOD | {"id_token": id_token(iat=NOW + 600, nbf=NOW + 600, exp=NOW + 900)})
    assert drive(redeem(spec(AuthorizationCode()), TRIED, told, NOW), answer(METADATA), good)[0].account is not None


def test_refresh_keeps_what_the_server_leaves_out() -> None:
    """The old refresh token, the account and the scope are kept if the answer has no new ones."""
    token = Token(Secret("old"), "Bearer", NOW, refresh=Secret("r-1"), scope="cart")
    renewed, requests = drive(refresh(spec(AuthorizationCode()), token, NOW), answer(METADATA), answer(GOOD))
    assert form(requests[1])["refresh_token"] == "r-1"
    assert renewed.refresh is not None
    assert (renewed.refresh.reveal(), renewed.scope) == ("r-1", "cart")
    rotated, _ = drive(
        refresh(spec(AuthorizationCode()), token, NOW), answer(METADATA), answer(GOOD | {"refresh_token": "r-2"})
    )
    assert rotated.refresh is not None
    assert rotated.refresh.reveal() == "r-2"
    empty, _ = drive(refresh(spec(AuthorizationCode()), token, NOW), answer(METADATA), answer(GOOD | EMPTY))
    assert empty.refresh is not None
    assert (empty.refresh.reveal(), empty.scope, empty.expires_at) == ("r-1", "cart", None)


def test_a_refresh_that_is_refused_ends_the_grant() -> None:
    """Only `invalid_grant` ends it: not an outage, or a rejected client."""
    token = Token(Secret("old"), "Bearer", NOW, refresh=Secret("r-1"))
    with pytest.raises(GrantEnded):
        drive(refresh(spec(AuthorizationCode()), token, NOW), answer(METADATA), answer({"error": "invalid_grant"}, 400))
    for error, status in (("invalid_client", 401), ("temporarily_unavailable", 503)):
        with pytest.raises(Refusal) as refused:
            drive(refresh(spec(AuthorizationCode()), token, NOW), answer(METADATA), answer({"error": error}, status))
        assert refused.value.reason is Reason.CREDENTIAL_FAILED


def test_a_clock_that_differs_much_is_named() -> None:
    """The difference is a number; the server's text is not repeated."""
    late = Response(
        401,
        (("content-type", "application/json"), ("date", "Fri, 15 Jan 2027 08:10:00 GMT")),
        b'{"error": "invalid_client"}',
    )
    with pytest.raises(Refusal, match=r"401 invalid_client \(its clock is 600 s ahead\)"):
        drive(client_credentials(spec(ClientCredentials()), NOW), answer(METADATA), late)


def test_token_exchange() -> None:
    """The subject's token and its type are sent; the result may be another type than an access token."""
    grant = TokenExchange("calendar", actor="robot", audience="https://orders.example", requested="urn:x:id-jag")
    subject, actor = Token(Secret("subject"), "Bearer", None), Token(Secret("actor"), "Bearer", None)
    issued = GOOD | {"issued_token_type": "urn:x:id-jag", "token_type": "N_A"}
    token, requests = drive(token_exchange(spec(grant), grant, subject, actor, NOW), answer(METADATA), answer(issued))
    sent = form(requests[1])
    assert (sent["subject_token"], sent["actor_token"], sent["audience"]) == ("subject", "actor", grant.audience)
    assert sent["subject_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    assert token.type == "urn:x:id-jag"


def test_the_id_token_of_an_account_is_exchanged() -> None:
    """The configuration selects that; an account without one gets the remedy."""
    grant = TokenExchange("calendar", by_id_token=True)
    subject = Token(Secret("subject"), "Bearer", None, id_token=Secret("a.b.c"))
    _, requests = drive(token_exchange(spec(grant), grant, subject, None, NOW), answer(METADATA), answer(GOOD))
    sent = form(requests[1])
    assert (sent["subject_token"], sent["subject_token_type"].rpartition(":")[2]) == ("a.b.c", "id_token")
    with pytest.raises(Refusal, match="scope openid"):
        next(token_exchange(spec(grant), grant, Token(Secret("subject"), "Bearer", None), None, NOW))


def test_jwt_bearer() -> None:
    """The assertion is our own about the subject, or another credential's token unchanged."""
    key = signing_key(Secret(KEY))
    grant = JwtBearer(key=key)
    client = Client("robot", None, ClientAuthentication.NONE)
    _, requests = drive(
        jwt_bearer(spec(grant, client), grant, "ann@example.com", None, NOW), answer(METADATA), answer(GOOD)
    )
    told = claims(form(requests[1])["assertion"])
    assert (told["iss"], told["sub"], told["aud"]) == ("robot", "ann@example.com", ISSUER)
    given = Token(Secret("id-jag"), "N_A", None)
    _, requests = drive(
        jwt_bearer(spec(grant), JwtBearer(assertion="x"), "", given, NOW), answer(METADATA), answer(GOOD)
    )
    assert form(requests[1])["assertion"] == "id-jag"


def test_revoke_tells_the_refresh_token() -> None:
    """Nothing is sent if the server has no revocation endpoint."""
    token = Token(Secret("a"), "Bearer", None, refresh=Secret("r"))
    told, requests = drive(revoke(spec(AuthorizationCode()), token, NOW), answer(METADATA), Response(200))
    assert told
    assert (requests[1].url, form(requests[1])["token"]) == (f"{ISSUER}/revoke", "r")
    without: Json = {key: value for key, value in METADATA.items() if key != "revocation_endpoint"}
    assert drive(revoke(spec(AuthorizationCode()), token, NOW), answer(without))[0] is False


@pytest.mark.parametrize("pem", ["", "x", json.dumps(PUBLIC), KEY.replace("PRIVATE", "PUBLIC")])
def test_what_is_no_private_key_is_refused_without_a_word_of_it(pem: str) -> None:
    """The message does not contain the key, as for every problem of the configuration."""
    with pytest.raises(ValueError, match="not a private key") as refused:
        signing_key(Secret(pem))
    assert not pem or pem not in str(refused.value)
