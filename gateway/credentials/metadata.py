"""Discovers an issuer's endpoints (RFC 8414, OpenID Connect Discovery 1.0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.credentials.server_answers import ANSWER_BYTES, Flow, ask, failed, is_secure, json_object, origin_of
from gateway.credentials.specs import ClientAuthentication, OAuth
from gateway.model import Json, Outbound

TIMEOUT = 5.0

_SECRET_METHODS: Final = (ClientAuthentication.BASIC, ClientAuthentication.POST)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Endpoints and capabilities of an authorization server. A missing one is None.

    `methods` are its client authentication methods, None if not declared; `sends_issuer` means that each of its
    authorization responses has `iss` (RFC 9207).
    """

    token: str
    authorization: str | None = None
    revocation: str | None = None
    methods: tuple[str, ...] | None = None
    challenges: tuple[str, ...] | None = None
    sends_issuer: bool = False

    def authentication(self, spec: OAuth) -> ClientAuthentication:
        """Return the client's authentication method here. Raises ValueError if there is none."""
        if spec.client.authentication is not None:
            return spec.client.authentication
        if self.methods is None:
            return ClientAuthentication.BASIC  # RFC 8414 2: the default
        found = next((method for method in _SECRET_METHODS if method in self.methods), None)
        if found is None:
            raise ValueError(f"offer neither {' nor '.join(_SECRET_METHODS)}")
        return found


def endpoints(spec: OAuth) -> Flow[Endpoints]:
    """Return the endpoints of a credential's server: configured ones, the rest from its metadata.

    With a configured token endpoint no metadata are read.
    """
    server = spec.server
    if server.token_endpoint is None:
        return (yield from discover(spec))
    return Endpoints(
        token=_configured(spec, server.token_endpoint, "token_endpoint"),
        authorization=_configured(spec, server.authorization_endpoint, "authorization_endpoint")
        if server.authorization_endpoint
        else None,
        revocation=_configured(spec, server.revocation_endpoint, "revocation_endpoint")
        if server.revocation_endpoint
        else None,
    )


def discover(spec: OAuth) -> Flow[Endpoints]:
    """Read the issuer's metadata, which must name this exact issuer (RFC 8414 3.3)."""
    named = spec.server.issuer
    issuer = named if "/" in named.partition("//")[2] else f"{named}/"
    if not is_secure(issuer) or "?" in issuer:
        raise failed(spec.name, "the issuer is not an https URL without query and fragment")
    for url in well_known(issuer):
        request = Outbound("GET", url, (("accept", "application/json"),), timeout=TIMEOUT, response_limit=ANSWER_BYTES)
        answer = yield from ask(spec.name, request)
        if answer.status == 200:
            try:
                return _endpoints(spec, json_object(answer))
            except ValueError as error:
                raise failed(spec.name, f"the metadata at {url} {error}") from None
        if not 400 <= answer.status <= 499:
            raise failed(spec.name, f"the metadata at {url} cannot be read: status {answer.status}")
    raise failed(spec.name, f"{origin_of(issuer)} has no metadata of this issuer: set token_endpoint")


def well_known(issuer: str) -> tuple[str, ...]:
    """Return the possible URLs of an issuer's metadata, in the order of requests (RFC 8414 3.1 and 5)."""
    origin, path = origin_of(issuer), issuer[len(origin_of(issuer)) :].rstrip("/")
    places = (
        f"{origin}/.well-known/oauth-authorization-server{path}",
        f"{origin}/.well-known/openid-configuration{path}",
        f"{origin}{path}/.well-known/openid-configuration",
    )
    return tuple(dict.fromkeys(places))


def _endpoints(spec: OAuth, metadata: dict[str, Json]) -> Endpoints:
    if metadata.get("issuer") != spec.server.issuer:
        raise ValueError(f"do not name the issuer {spec.server.issuer}")
    token = _url(metadata, "token_endpoint")
    if token is None:
        raise ValueError("name no token_endpoint that is an https URL")
    aliases = metadata.get("mtls_endpoint_aliases")
    if spec.server.certificate is not None and isinstance(aliases, dict):  # RFC 8705 5
        token = _url(aliases, "token_endpoint") or token
    found = Endpoints(
        token=token,
        authorization=spec.server.authorization_endpoint or _url(metadata, "authorization_endpoint"),
        revocation=spec.server.revocation_endpoint or _url(metadata, "revocation_endpoint"),
        methods=_texts(metadata, "token_endpoint_auth_methods_supported"),
        challenges=_texts(metadata, "code_challenge_methods_supported"),
        sends_issuer=metadata.get("authorization_response_iss_parameter_supported") is True,
    )
    found.authentication(spec)
    return found


def _url(metadata: dict[str, Json], key: str) -> str | None:
    url = metadata.get(key)
    if url is None or url == "":
        return None
    if not isinstance(url, str) or not is_secure(url):
        raise ValueError(f"name no {key} that is an https URL")
    return url


def _texts(metadata: dict[str, Json], key: str) -> tuple[str, ...] | None:
    values = metadata.get(key)
    if values is None:
        return None
    return tuple(value for value in values if isinstance(value, str)) if isinstance(values, list) else ()


def _configured(spec: OAuth, url: str, key: str) -> str:
    if not is_secure(url):
        raise failed(spec.name, f"{key} is not an https URL with a path")
    return url
