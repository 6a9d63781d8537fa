"""Tests of the client credentials flow, driven by hand, request by request."""

from __future__ import annotations

import base64
import json
from urllib.parse import parse_qs, unquote_plus

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.credentials import Client, ClientCredentials, OAuth, Server, Token, client_credentials
from gateway.errors import Reason, Refusal
from gateway.model import Json, Outbound, Response, Secret
from tests.leaks.marks import MARK

NOW = 1_800_000_000.0
SECRET = f"s3cret/+ &=:é {MARK}"
NO_LIVES: list[Json] = [None, 0, -1, 0.0, True, "", "0", "-1", "soon", "NaN", "inf", "٣", [300], {}]
GOOD: dict[str, Json] = {"access_token": "abc.def", "token_type": "Bearer", "expires_in": 300}


class Everywhere:
    """A network without limits; the flow itself never uses it."""

    def allows(self, ip: str) -> bool:
        return True


def spec(
    token_endpoint: str | None = "https://login.example/token",
    issuer: str = "https://login.example",
    scope: tuple[str, ...] = ("cart", "read"),
) -> OAuth:
    server = Server(issuer, Everywhere(), token_endpoint)
    return OAuth("shop-service", ClientCredentials(), server, Client("gate:way", Secret(SECRET)), scope)


def answer(body: Json | bytes, status: int = 200, content_type: str = "application/json") -> Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(status, (("content-type", content_type),), raw)


def drive(credential: OAuth, *answers: Response | Refusal) -> tuple[Token, list[Outbound]]:
    """Run the flow with these answers; return the token and the requests."""
    flow = client_credentials(credential, NOW)
    requests = [next(flow)]
    for given_answer in answers:
        try:
            if isinstance(given_answer, Refusal):
                requests.append(flow.throw(given_answer))
            else:
                requests.append(flow.send(given_answer))
        except StopIteration as stop:
            token = stop.value
            assert isinstance(token, Token)
            return token, requests
    raise AssertionError(f"the flow asks for more: {requests[-1].url}")


def failure(credential: OAuth, *answers: Response | Refusal) -> str:
    """The detail of the refusal that ends the flow, which is checked for secrets."""
    with pytest.raises(Refusal) as caught:
        drive(credential, *answers)
    assert caught.value.reason is Reason.CREDENTIAL_FAILED
    for secret in (SECRET, "abc.def", "s3cret"):
        assert secret not in caught.value.detail
    assert caught.value.detail.startswith("credential 'shop-service': ")
    return caught.value.detail


def test_token() -> None:
    """A valid answer gives a token with its expiry."""
    token, _ = drive(spec(), answer(GOOD))
    assert token.header() == ("authorization", "Bearer abc.def")
    assert token.expires_at == NOW + 300
    assert "abc" not in repr(token)


def test_token_without_end() -> None:
    """Without a declared lifetime the token has no expiry."""
    token, _ = drive(spec(), answer({"access_token": "abc", "token_type": "bearer"}))
    assert token.expires_at is None


def test_request() -> None:
    """The request is a form, with client id and secret form-urlencoded in Basic (RFC 6749 2.3.1)."""
    _, (request,) = drive(spec(), answer(GOOD))
    headers = dict(request.headers)
    assert (request.method, request.url) == ("POST", "https://login.example/token")
    assert parse_qs(request.body.decode()) == {"grant_type": ["client_credentials"], "scope": ["cart read"]}
    assert headers["content-type"] == "application/x-www-form-urlencoded"
    pair = base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode()
    assert [unquote_plus(part) for part in pair.split(":")] == ["gate:way", SECRET]


def test_no_scope() -> None:
    """Without scopes the parameter is left out."""
    _, (request,) = drive(spec(scope=()), answer(GOOD))
    assert b"scope" not in request.body


METADATA: dict[str, Json] = {"issuer": "https://login.example", "token_endpoint": "https://tokens.example/get"}


def test_discovery() -> None:
    """Without `token_endpoint`, the endpoint is taken from the issuer's metadata."""
    _, requests = drive(spec(None), answer(METADATA), answer(GOOD))
    assert [(request.method, request.url) for request in requests] == [
        ("GET", "https://login.example/.well-known/oauth-authorization-server"),
        ("POST", "https://tokens.example/get"),
    ]


@pytest.mark.parametrize("issuer", ["https://login.example/tenant", "https://login.example/tenant/"])
def test_discovery_with_a_path(issuer: str) -> None:
    """The well-known part is inserted between host and path, and OpenID's location is tried last."""
    metadata: Json = METADATA | {"issuer": issuer}
    _, requests = drive(spec(None, issuer), answer(b"", 404), answer(b"", 404), answer(metadata), answer(GOOD))
    assert [request.url for request in requests[:3]] == [
        "https://login.example/.well-known/oauth-authorization-server/tenant",
        "https://login.example/.well-known/openid-configuration/tenant",
        "https://login.example/tenant/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize(
    ("methods", "in_header"),
    [
        (None, True),
        (["client_secret_post", "client_secret_basic"], True),
        (["private_key_jwt", "client_secret_post"], False),
    ],
)
def test_client_authentication(methods: Json, in_header: bool) -> None:
    """The secret is in the body only if the metadata offer no better method."""
    metadata = METADATA if methods is None else METADATA | {"token_endpoint_auth_methods_supported": methods}
    _, requests = drive(spec(None), answer(metadata), answer(GOOD))
    form = parse_qs(requests[1].body.decode())
    assert ("authorization" in dict(requests[1].headers)) is in_header
    assert form.get("client_secret") == (None if in_header else [SECRET])


@pytest.mark.parametrize(
    "metadata",
    [
        METADATA | {"issuer": "https://login.example/"},
        METADATA | {"issuer": "https://evil.example"},
        METADATA | {"issuer": None},
        METADATA | {"token_endpoint": "http://tokens.example/get"},
        METADATA | {"token_endpoint": "https://user@tokens.example/get"},
        METADATA | {"token_endpoint": "https://tokens.example/get#x"},
        METADATA | {"token_endpoint": "/get"},
        METADATA | {"token_endpoint": ["https://tokens.example/get"]},
        METADATA | {"token_endpoint_auth_methods_supported": ["private_key_jwt"]},
        METADATA | {"token_endpoint_auth_methods_supported": "client_secret_basic"},
        [],
        b"<html>",
        b'{"issuer": "https://login.example", "issuer": "https://evil.example"}',
        b"[" * 100_000,
    ],
)
def test_metadata_that_are_refused(metadata: Json | bytes) -> None:
    """Metadata of another issuer, or with an unsafe endpoint, end the flow."""
    assert "metadata" in failure(spec(None), answer(metadata))


@pytest.mark.parametrize("status", [301, 302, 500, 503, 204])
def test_metadata_that_cannot_be_read(status: int) -> None:
    """A redirect is not followed, and after a server error no other location is tried."""
    assert str(status) in failure(spec(None), answer(b"", status))


def test_no_metadata() -> None:
    """The message has the remedy."""
    assert "token_endpoint" in failure(spec(None), answer(b"", 404), answer(b"", 403))


@pytest.mark.parametrize(
    "url",
    [
        "http://login.example/token",
        "http://localhost.evil.example/token",
        "http://127.0.0.1.evil.example/token",
        "http://10.0.0.1/token",
        "https://login.example",
        "https://a@login.example/token",
        "https://login.example/to ken",
        "https://login.example\\@evil.example/token",
        "ftp://login.example/token",
        "",
    ],
)
def test_endpoints_that_are_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is sent over https only, to an unambiguous host, whatever Authlib would allow."""
    monkeypatch.setenv("AUTHLIB_INSECURE_TRANSPORT", "1")
    with pytest.raises(Refusal, match="https"):
        next(client_credentials(spec(url), NOW))


@pytest.mark.parametrize(
    "issuer", ["http://login.example", "https://login.example?x", "https://login.example/#x", "https://a@b.example", ""]
)
def test_issuers_that_are_refused(issuer: str) -> None:
    """Metadata are read over https only, from an issuer without query and fragment."""
    with pytest.raises(Refusal, match="https"):
        next(client_credentials(spec(None, issuer), NOW))


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:1", "127.8.8.8", "[::1]:8080", "auth.localhost:80"])
def test_loopback_needs_no_https(host: str) -> None:
    """On this machine a token endpoint may speak plain http."""
    assert next(client_credentials(spec(f"http://{host}/token"), NOW)).url == f"http://{host}/token"


@pytest.mark.parametrize(
    "body",
    [
        {"token_type": "Bearer"},
        GOOD | {"access_token": ""},
        GOOD | {"access_token": None},
        GOOD | {"access_token": 5},
        GOOD | {"access_token": "a b"},
        GOOD | {"access_token": "a\r\nx: y"},
        GOOD | {"access_token": "a" * 20_000},
        GOOD | {"token_type": "mac"},
        GOOD | {"token_type": None},
        [GOOD],
        "abc.def",
        b"abc.def",
        b"\xff\xfe",
        b'{"access_token": "abc.def", "token_type": "Bearer", "expires_in": NaN}',
        b'{"access_token": "abc.def", "access_token": "abc.def", "token_type": "Bearer"}',
    ],
)
def test_answers_that_are_refused(body: Json | bytes) -> None:
    """Only an exact bearer token is accepted, and nothing of the answer is repeated."""
    assert "https://login.example" in failure(spec(), answer(body))


def test_answer_of_another_media_type() -> None:
    """A token in an answer that is not labelled JSON is refused."""
    assert "application/json" in failure(spec(), answer(GOOD, content_type="text/html"))


@pytest.mark.parametrize("life", ["1" + "0" * 300, "9" * 6000, "1e999", '"%s"' % ("9" * 399), '"99999999999.5"'])
def test_very_long_life(life: str) -> None:
    """An excessive lifetime does not lead to an infinite date."""
    body = f'{{"access_token": "abc.def", "token_type": "Bearer", "expires_in": {life}}}'
    token, _ = drive(spec(), answer(body.encode()))
    assert token.expires_at is not None
    assert token.expires_at < NOW * 2


@pytest.mark.parametrize(
    ("life", "expires_at"),
    [
        (300, NOW + 300),
        (300.5, NOW + 300.5),
        ("300", NOW + 300),
        (" 300 ", NOW + 300),
        ("300.0", NOW + 300),
        *((life, None) for life in NO_LIVES),
    ],
)
def test_a_life_that_says_nothing_does_not_void_the_token(life: Json, expires_at: float | None) -> None:
    """`expires_in` is recommended, not required (RFC 6749 5.1); some servers send a string."""
    token, _ = drive(spec(), answer(GOOD | {"expires_in": life}))
    assert (token.value.reveal(), token.expires_at) == ("abc.def", expires_at)


@pytest.mark.parametrize("refresh", ["", None, 5, [], "a\r\nb: c", "a" * 20_000])
def test_a_refresh_token_that_is_none_does_not_void_the_token(refresh: Json) -> None:
    """It is optional, and an invalid one is never sent."""
    token, _ = drive(spec(), answer(GOOD | {"refresh_token": refresh}))
    assert (token.value.reveal(), token.refresh) == ("abc.def", None)


@pytest.mark.parametrize(
    ("scope", "kept"), [("", ""), (None, ""), (["a", "b"], "a b"), ("a b", "a b"), (5, ""), ({}, ""), ("a\n", "")]
)
def test_a_scope_that_is_none_does_not_void_the_token(scope: Json, kept: str) -> None:
    """It is optional if it equals the requested one."""
    token, _ = drive(spec(), answer(GOOD | {"scope": scope}))
    assert (token.value.reveal(), token.scope) == ("abc.def", kept)


@pytest.mark.parametrize("kind", ["Bearer", "bearer", "BEARER", "bEaReR"])
def test_the_type_of_a_token_is_read_in_any_case(kind: str) -> None:
    """RFC 6749 5.1 requires that; the token is sent as `Bearer`."""
    token, _ = drive(spec(), answer(GOOD | {"token_type": kind}))
    assert token.header() == ("authorization", "Bearer abc.def")


def test_metadata_that_leave_an_optional_endpoint_empty() -> None:
    """The endpoint counts as missing."""
    metadata: Json = METADATA | {"revocation_endpoint": "", "authorization_endpoint": None}
    assert drive(spec(None), answer(metadata), answer(GOOD))[0].value.reveal() == "abc.def"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"error": "invalid_client", "error_description": SECRET}, "401 invalid_client"),
        ({"error": "s3cret"}, "401"),
        ({"error": {"a": 1}}, "401"),
        (b"s3cret", "401"),
    ],
)
def test_refused_by_the_server(body: Json | bytes, told: str) -> None:
    """The status and a known error code are reported; the server's text, which may echo the secret, is not."""
    assert failure(spec(), answer(body, 401)).endswith(f" answered {told}")


def test_unreachable() -> None:
    """A refusal of the connection, thrown into the flow, is a failure of the credential."""
    down = Refusal(Reason.BACKEND_UNREACHABLE, "login.example:443: no connection")
    assert "no connection" in failure(spec(None), down)
    assert "no connection" in failure(spec(), down)


@given(body=st.binary(max_size=300), status=st.sampled_from([200, 400, 401, 500]))
def test_any_answer(body: bytes, status: int) -> None:
    """For any answer the flow ends in a token or a refusal."""
    flow = client_credentials(spec(), NOW)
    next(flow)
    with pytest.raises((StopIteration, Refusal)):
        flow.send(answer(body, status))


async def test_over_http(http_client: str) -> None:
    """The whole flow runs against a real server."""
    seen = []

    async def metadata(request: web.Request) -> web.Response:
        issuer = str(server.make_url("")).rstrip("/")
        return web.json_response({"issuer": issuer, "token_endpoint": f"{issuer}/token"})

    async def token(request: web.Request) -> web.Response:
        seen.append(dict(await request.post()))
        return web.json_response(GOOD)

    app = web.Application()
    app.router.add_get("/.well-known/oauth-authorization-server", metadata)
    app.router.add_post("/token", token)
    server = TestServer(app)
    async with server, Connections(use_aiohttp=http_client == "aiohttp") as connections:
        credential = spec(None, str(server.make_url("")).rstrip("/"))
        backend = HttpBackend(credential, connections)
        flow = client_credentials(credential, NOW)
        request = next(flow)
        request = flow.send(await backend.send(request))
        response = await backend.send(request)
        with pytest.raises(StopIteration) as stop:
            flow.send(response)
    assert stop.value.value.expires_at == NOW + 300
    assert seen == [{"grant_type": "client_credentials", "scope": "cart read"}]
