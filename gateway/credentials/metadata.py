"""From an issuer's name to its token endpoint (RFC 8414, OpenID Connect Discovery 1.0)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.credentials.answers import ANSWER_BYTES, Flow, ask, failed, is_secure, json_object, origin_of
from gateway.credentials.nouns import ClientCredentials
from gateway.model import Json, Outbound

TIMEOUT = 5.0


class ClientAuthentication(StrEnum):
    """How a client says who it is (RFC 6749 2.3.1)."""

    BASIC = "client_secret_basic"
    POST = "client_secret_post"


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """Where tokens are got, and how the client authenticates there."""

    url: str
    authentication: ClientAuthentication = ClientAuthentication.BASIC


def discover(spec: ClientCredentials) -> Flow[TokenEndpoint]:
    """Read the issuer's metadata, which must name this very issuer (RFC 8414 3.3)."""
    issuer = spec.issuer if "/" in spec.issuer.partition("//")[2] else f"{spec.issuer}/"
    if not is_secure(issuer) or "?" in issuer:
        raise failed(spec.name, "the issuer is not an https URL without query and fragment")
    for url in well_known(issuer):
        request = Outbound("GET", url, (("accept", "application/json"),), timeout=TIMEOUT, response_limit=ANSWER_BYTES)
        answer = yield from ask(spec.name, request)
        if answer.status == 200:
            try:
                return _token_endpoint(spec, json_object(answer))
            except ValueError as error:
                raise failed(spec.name, f"the metadata at {url} {error}") from None
        if not 400 <= answer.status <= 499:
            raise failed(spec.name, f"the metadata at {url} cannot be read: status {answer.status}")
    raise failed(spec.name, f"{origin_of(issuer)} has no metadata of this issuer: set token_endpoint")


def well_known(issuer: str) -> tuple[str, ...]:
    """Where an issuer's metadata may be, in the order in which they are asked (RFC 8414 3.1 and 5)."""
    origin, path = origin_of(issuer), issuer[len(origin_of(issuer)) :].rstrip("/")
    places = (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    )
    return tuple(dict.fromkeys(places))


def _token_endpoint(spec: ClientCredentials, metadata: dict[str, Json]) -> TokenEndpoint:
    if metadata.get("issuer") != spec.issuer:
        raise ValueError(f"do not name the issuer {spec.issuer}")
    url = metadata.get("token_endpoint")
    if not isinstance(url, str) or not is_secure(url):
        raise ValueError("name no token_endpoint that is an https URL")
    return TokenEndpoint(url, _authentication(metadata.get("token_endpoint_auth_methods_supported")))


def _authentication(methods: Json) -> ClientAuthentication:
    if methods is None:
        return ClientAuthentication.BASIC  # RFC 8414 2: the default
    for known in ClientAuthentication:
        if isinstance(methods, list) and known in methods:
            return known
    raise ValueError(f"offer neither {' nor '.join(ClientAuthentication)}")
