"""Metadata of authorization servers, and their endpoints (RFC 8414, OpenID Connect Discovery 1.0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from authlib.oauth2.rfc8414 import get_well_known_url
from authlib.oidc.discovery import get_well_known_url as get_openid_well_known_url

from gateway.credentials.flow_steps import ANSWER_BYTES, Flow, failure, is_secure, json_object
from gateway.credentials.specs import ClientAuthentication, OAuth
from gateway.errors import Refusal
from gateway.model import Json, Outbound

TIMEOUT = 5.0
"""Seconds for each request of metadata."""

ACCEPT_JSON: Final = (("accept", "application/json"),)

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
        choice = next((method for method in _SECRET_METHODS if method in self.methods), None)
        if choice is None:
            raise ValueError(f"offers neither {' nor '.join(_SECRET_METHODS)} in its metadata")
        return choice


def find_endpoints(spec: OAuth) -> Flow[Endpoints]:
    """Return the endpoints of a credential's server: configured ones, the rest from its metadata.

    With a configured token endpoint no metadata are read.
    """
    server = spec.server
    if server.token_endpoint is None:
        return (yield from discover_endpoints(spec))
    return Endpoints(
        token=_check_configured(spec, server.token_endpoint, "token_endpoint"),
        authorization=_check_configured(spec, server.authorization_endpoint, "authorization_endpoint")
        if server.authorization_endpoint
        else None,
        revocation=_check_configured(spec, server.revocation_endpoint, "revocation_endpoint")
        if server.revocation_endpoint
        else None,
    )


def discover_endpoints(spec: OAuth) -> Flow[Endpoints]:
    """Read the endpoints from the issuer's metadata. Raises `Refusal`."""
    try:
        return _endpoints(spec, (yield from fetch_metadata(spec.server.issuer)))
    except LookupError as error:
        raise failure(spec.name, f"its server {error}: set token_endpoint") from None
    except ValueError as error:
        raise failure(spec.name, f"its server {error}") from None
    except Refusal as refusal:
        raise failure(spec.name, refusal.detail) from refusal


def fetch_metadata(issuer: str) -> Flow[dict[str, Json]]:
    """Get an issuer's metadata, which must name this exact issuer (RFC 8414 3.3).

    Raises LookupError if there are none, ValueError for unusable ones, both with a text about the server; and the
    `Refusal` of a request.
    Authlib 1.9's `AuthorizationServerMetadata.validate` is not used: it refuses servers for members that the gateway
    does not read, such as a missing `response_types_supported`.
    """
    if not is_secure(f"{issuer}/") or "?" in issuer:
        raise ValueError("is not at an https URL without query and fragment")
    for url in well_known_urls(issuer):
        answer = yield Outbound("GET", url, ACCEPT_JSON, timeout=TIMEOUT, response_limit=ANSWER_BYTES)
        if answer.status == 200:
            try:
                metadata = json_object(answer)
            except ValueError as error:
                raise ValueError(f"publishes metadata at {url} whose text {error}") from None
            if metadata.get("issuer") != issuer:
                raise ValueError(f"publishes metadata at {url} that do not name the issuer {issuer}")
            return metadata
        if not 400 <= answer.status <= 499:
            raise ValueError(f"answers status {answer.status} to the request for its metadata at {url}")
    raise LookupError("has no metadata of this issuer")


def well_known_urls(issuer: str) -> tuple[str, ...]:
    """Return the possible URLs of an issuer's metadata, in the order of requests (RFC 8414 3.1 and 5)."""
    base = issuer.rstrip("/")
    urls: tuple[str, ...] = (
        get_well_known_url(base, external=True),
        get_well_known_url(base, external=True, suffix="openid-configuration"),
        get_openid_well_known_url(base, external=True),
    )
    return tuple(dict.fromkeys(urls))


def _endpoints(spec: OAuth, metadata: dict[str, Json]) -> Endpoints:
    token = endpoint_url(metadata, "token_endpoint")
    if token is None:
        raise ValueError("names no token_endpoint in its metadata")
    aliases = metadata.get("mtls_endpoint_aliases")
    if spec.server.certificate is not None and isinstance(aliases, dict):  # RFC 8705 5
        token = endpoint_url(aliases, "token_endpoint") or token
    endpoints = Endpoints(
        token=token,
        authorization=spec.server.authorization_endpoint or endpoint_url(metadata, "authorization_endpoint"),
        revocation=spec.server.revocation_endpoint or endpoint_url(metadata, "revocation_endpoint"),
        methods=_texts(metadata, "token_endpoint_auth_methods_supported"),
        challenges=_texts(metadata, "code_challenge_methods_supported"),
        sends_issuer=sends_issuer(metadata),
    )
    endpoints.authentication(spec)
    return endpoints


def endpoint_url(metadata: dict[str, Json], name: str) -> str | None:
    """Return the URL of an endpoint, None if it is missing or empty. Raises ValueError for an unsafe one."""
    url = metadata.get(name)
    if url is None or url == "":
        return None
    if not isinstance(url, str) or not is_secure(url):
        raise ValueError(f"names a {name} in its metadata that is not an https URL with a path")
    return url


def sends_issuer(metadata: dict[str, Json]) -> bool:
    """Return whether all authorization responses of the server have `iss` (RFC 9207 3)."""
    return metadata.get("authorization_response_iss_parameter_supported") is True


def _texts(metadata: dict[str, Json], key: str) -> tuple[str, ...] | None:
    values = metadata.get(key)
    if values is None:
        return None
    return tuple(value for value in values if isinstance(value, str)) if isinstance(values, list) else ()


def _check_configured(spec: OAuth, url: str, key: str) -> str:
    if not is_secure(url):
        raise failure(spec.name, f"{key} is not an https URL with a path")
    return url
