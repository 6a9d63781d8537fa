"""Requests to a token endpoint: client authentication, the JWTs that the gateway signs, validation of the answer.

Client assertions and authorization grants are those of RFC 7523, proofs of possession those of RFC 9449.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, TypeGuard
from urllib.parse import quote

from authlib.common.urls import add_params_to_qs
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc7523.assertion import sign_jwt_bearer_assertion
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from gateway.credentials.flow_steps import ANSWER_BYTES, Flow, ask, failure, json_object, number, origin_of
from gateway.credentials.metadata import Endpoints
from gateway.credentials.specs import Client, ClientAuthentication, OAuth, SigningKey, Token
from gateway.crypto import base64url
from gateway.errors import GrantEnded
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Headers, Json, Outbound, Response, Secret, with_path

LIFE: Final = 60
"""Lifetime of an assertion in seconds."""

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signature algorithms for signing and verification: never `none`, never a shared secret."""

_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA_BITS: Final = 2048

DPOP_ALGORITHM: Final = "ES256"
NONCE: Final = "dpop-nonce"
_NONCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,512}")
_SCHEME = re.compile(r"\bdpop\b", re.IGNORECASE)
_WANTED = re.compile(r'\berror\s*=\s*"?use_dpop_nonce\b', re.IGNORECASE)


def signing_key(pem: Secret, id: str | None = None, algorithm: str | None = None) -> SigningKey:
    """Read the key in `pem`, by default with the algorithm of its type. Raises ValueError, never quoting the key."""
    try:
        key = load_pem_private_key(pem.reveal().encode(), None)
    except (ValueError, TypeError):
        raise ValueError("is not a private key in PEM without a password") from None
    match key:
        case rsa.RSAPrivateKey() if key.key_size >= _RSA_BITS:
            fitting: tuple[str, ...] = ALGORITHMS[:6]
        case rsa.RSAPrivateKey():
            raise ValueError(f"is an RSA key of less than {_RSA_BITS} bits")
        case ec.EllipticCurvePrivateKey() if key.curve.name in _CURVES:
            fitting = (_CURVES[key.curve.name],)
        case ed25519.Ed25519PrivateKey():
            fitting = ("EdDSA",)
        case _:
            raise ValueError("is a key of a kind that cannot be used: take RSA, P-256, P-384, P-521 or Ed25519")
    if algorithm is not None and algorithm not in fitting:
        raise ValueError(f"does not sign with {algorithm}: take {', '.join(fitting)}")
    return SigningKey(pem, algorithm or fitting[0], id)


def assertion(key: SigningKey, issuer: str, subject: str, audience: str, now: float) -> str:
    """Return a single-use, short-lived assertion (RFC 7523 3)."""
    header = {"alg": key.algorithm} | ({"kid": key.id} if key.id is not None else {})
    signed: str = sign_jwt_bearer_assertion(
        _import_key(key), issuer, audience, subject, issued_at=int(now), expires_in=LIFE, header=header
    )
    return signed


def _import_key(key: SigningKey) -> RSAKey | ECKey | OKPKey:
    pem = key.pem.reveal()
    if key.algorithm == "EdDSA":
        return OKPKey.import_key(pem)
    return ECKey.import_key(pem) if key.algorithm.startswith("ES") else RSAKey.import_key(pem)


def new_key() -> Secret:
    """Return a new key for one token, as private JWK."""
    return Secret(plain_json(ECKey.generate_key("P-256", private=True).as_dict(private=True)))


def proof(
    key: Secret, method: str, url: str, now: float, *, nonce: str | None = None, token: Secret | None = None
) -> tuple[str, str]:
    """Return the header field that proves the possession of `key` for one request (RFC 9449 4.2); Authlib has no DPoP.

    `token` is the access token sent with it; None at a token endpoint.
    """
    jwk = ECKey.import_key(parse_json(key.reveal()))
    claims: dict[str, Json] = {
        "jti": secrets.token_urlsafe(16),
        "htm": method,
        "htu": url.partition("?")[0].partition("#")[0],
        "iat": int(now),
    }
    if nonce is not None:
        claims["nonce"] = nonce
    if token is not None:
        claims["ath"] = base64url(hashlib.sha256(token.reveal().encode()).digest())
    header = {"alg": DPOP_ALGORITHM, "typ": "dpop+jwt", "jwk": jwk.as_dict(private=False)}
    return "dpop", jwt.encode(header, claims, jwk, algorithms=[DPOP_ALGORITHM])


def offered_nonce(headers: Headers) -> str | None:
    """Return the nonce that an answer provides for the next request (RFC 9449 8.2)."""
    nonces = [value for name, value in headers if name == NONCE]
    return nonces[0] if len(nonces) == 1 and _NONCE.fullmatch(nonces[0]) else None


def wants_nonce(headers: Headers) -> bool:
    """Return whether a resource server refused a request only for a missing nonce (RFC 9449 9)."""
    challenges = (value for name, value in headers if name == "www-authenticate")
    # Two searches: one expression for both takes quadratic time on a hostile field.
    return any((scheme := _SCHEME.search(value)) and _WANTED.search(value, scheme.end()) for value in challenges)


TIMEOUT = 10.0
TOKEN_CHARACTERS = 16 * 1024
LIFE_SECONDS = 10 * 365 * 24 * 3600
"""Longest accepted lifetime of a token; a longer one is cut to this."""

SKEW_SECONDS = 30
"""Clock difference in seconds from which it is reported as a possible cause."""

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*\Z")  # RFC 6750 2.1, b64token
_ID_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,8192}\.[A-Za-z0-9_-]{1,8192}\.[A-Za-z0-9_-]{1,8192}")
_REFRESH = re.compile(r"[\x20-\x7e]+\Z")  # RFC 6749 A.17
_TOKEN_TYPE = re.compile(r"urn:[a-z0-9:._-]{1,120}\Z", re.IGNORECASE)
_ERRORS = frozenset(  # RFC 6749 5.2, RFC 8707 2, RFC 9449; other codes could repeat what was sent
    {
        "invalid_request",
        "invalid_client",
        "invalid_grant",
        "invalid_scope",
        "invalid_target",
        "invalid_dpop_proof",
        "unauthorized_client",
        "unsupported_grant_type",
        "use_dpop_nonce",
        "server_error",
        "temporarily_unavailable",
    }
)


@dataclass(frozen=True, slots=True)
class GrantedToken:
    """The token, and the whole answer for its other members."""

    token: Token
    answer: Mapping[str, Json]

    @property
    def id_token(self) -> Secret | None:
        """The ID token in it, None if there is none that can be sent."""
        value = self.answer.get("id_token")
        return Secret(value) if isinstance(value, str) and _ID_TOKEN.fullmatch(value) else None


def request_token(
    spec: OAuth, endpoints: Endpoints, form: str, now: float, *, key: Secret | None = None
) -> Flow[GrantedToken]:
    """Request a token with `form` (urlencoded), bound to `key` if given. `now` is in seconds since the epoch.

    Raises `Refusal` (`credential-failed`), whose detail names the credential and has no secret and no free text of the
    server; `GrantEnded` for `invalid_grant`.
    """
    nonce: str | None = None
    answer = yield from ask(spec.name, client_request(spec, endpoints, endpoints.token, form, now, key, nonce))
    if key is not None and _error(answer) == "use_dpop_nonce":
        nonce = offered_nonce(answer.headers)
        answer = yield from ask(spec.name, client_request(spec, endpoints, endpoints.token, form, now, key, nonce))
    place = f"the token endpoint at {origin_of(endpoints.token)}"
    if answer.status != 200:
        raise _refusal(spec, answer, place, now)
    try:
        document = json_object(answer)
        return GrantedToken(_token(document, now, key), document)
    except ValueError as error:
        raise failure(spec.name, f"the answer of {place} {error}") from None


def client_request(
    spec: OAuth,
    endpoints: Endpoints,
    url: str,
    form: str,
    now: float,
    key: Secret | None = None,
    nonce: str | None = None,
) -> Outbound:
    """Return a form for an endpoint of the server, with the client's authentication."""
    try:
        method = endpoints.authentication(spec)
    except ValueError as error:
        raise failure(spec.name, f"its server {error}") from None
    client = spec.client
    if method is ClientAuthentication.PRIVATE_KEY_JWT:
        if client.key is None:
            raise failure(spec.name, "private_key_jwt needs private_key")
        signed = assertion(client.key, client.id, client.id, spec.server.issuer, now)
        form = add_params_to_qs(form, {"client_assertion_type": ASSERTION_TYPE, "client_assertion": signed})
    possession = (proof(key, "POST", with_path(url), now, nonce=nonce),) if key is not None else ()
    return form_request(client, method, url, form, TIMEOUT, possession)


def form_request(
    client: Client, method: ClientAuthentication, url: str, form: str, timeout: float, more: Headers = ()
) -> Outbound:
    """Return a form with the client's secret if `method` sends it, else with its id.

    `timeout` is in seconds, `more` are further header fields.
    """
    secret = client.secret.reveal() if client.secret is not None else ""
    headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
    if method is ClientAuthentication.BASIC:
        headers["authorization"] = _basic(client.id, secret)
    else:
        name = "client_secret_post" if method is ClientAuthentication.POST else "none"
        _, _, form = ClientAuth(client.id, secret, name).prepare("POST", url, headers, form)
    fields = (*headers.items(), *more)
    return Outbound("POST", with_path(url), fields, form.encode(), timeout=timeout, response_limit=ANSWER_BYTES)


def _basic(client: str, secret: str) -> str:
    """Return the Basic authorization of the client, each part encoded before joining (RFC 6749 2.3.1).

    Authlib 1.9 joins them as they are, which breaks with a colon, a percent sign, or a letter beyond Latin-1.
    """
    # RFC 6749 2.3.1 asks for form encoding; a space as %20 is decoded alike by servers that do not know "+"
    pair = f"{quote(client, safe='')}:{quote(secret, safe='')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _refusal(spec: OAuth, answer: Response, place: str, now: float) -> Exception:
    code = _error(answer)
    why = f"{place} answered {answer.status}{f' {code}' if code else ''}{_skew(answer, now)}"
    if code == "invalid_grant":
        return GrantEnded(f"credential {spec.name!r}: {why}")
    return failure(spec.name, why)


def _error(answer: Response) -> str | None:
    if answer.status == 200:
        return None
    try:
        code = json_object(answer).get("error")
    except ValueError:
        return None
    return code if isinstance(code, str) and code in _ERRORS else None


def _skew(answer: Response, now: float) -> str:
    """Return a note if the clocks differ, which invalidates assertions; `date` is parsed, not repeated."""
    try:
        theirs = parsedate_to_datetime(answer.header("date") or "").timestamp()
    except (ValueError, OverflowError):
        return ""
    off = round(theirs - now)
    return f" (its clock is {abs(off)} s {'ahead' if off > 0 else 'behind'})" if abs(off) >= SKEW_SECONDS else ""


def _token(answer: dict[str, Json], now: float, key: Secret | None) -> Token:
    """Return the token of an answer (RFC 6749 5.1). Raises ValueError.

    Authlib 1.9's `OAuth2Token` checks neither token nor type, and fails at an `expires_in` that is no integer.
    """
    value, kind = answer.get("access_token"), answer.get("token_type")
    if not isinstance(value, str) or len(value) > TOKEN_CHARACTERS or not _BEARER.match(value):
        raise ValueError("holds no access_token that can be sent")
    wanted_kind = "Bearer" if key is None else "DPoP"
    exchanged = answer.get("issued_token_type")
    # RFC 8693 2.2.1: an issued token that is no access token has the type N_A
    kinds = (wanted_kind.lower(), "n_a") if exchanged is not None else (wanted_kind.lower(),)
    if not isinstance(kind, str) or kind.lower() not in kinds:
        raise ValueError(f"holds a token whose token_type is not {wanted_kind}")
    # Only the two above are required (RFC 6749 5.1): errors in the others do not invalidate the token.
    refresh = answer.get("refresh_token")
    token = Token(
        Secret(value),
        wanted_kind,
        _expiry(answer.get("expires_in"), now),
        refresh=Secret(refresh) if _is_refresh(refresh) else None,
        scope=_scope(answer.get("scope")),
        key=key,
    )
    if isinstance(exchanged, str) and _TOKEN_TYPE.match(exchanged):
        return Token(token.value, token.token_type, token.expires_at, key=key, scope=token.scope, type=exchanged)
    return token


def _is_refresh(value: Json) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= TOKEN_CHARACTERS and _REFRESH.match(value) is not None


def _scope(value: Json) -> str:
    """Return the scope; some servers send a list of its words."""
    if isinstance(value, list):
        value = " ".join(word for word in value if isinstance(word, str))
    return value if isinstance(value, str) and _REFRESH.match(value) else ""


def _expiry(life: Json, now: float) -> float | None:
    """Return when the token expires; None if the server gives no positive number: then a 401 shows its end."""
    seconds = number(life)
    return now + min(seconds, LIFE_SECONDS) if seconds is not None and seconds > 0 else None
