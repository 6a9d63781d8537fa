"""Reads `credentials` and `stores.encryption_key` of gateway.yaml: how the gateway authenticates to backends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gateway.config import locations
from gateway.config.locations import network
from gateway.config.secrets import UNSET, LenientEnvironment, PendingSecret, optional_secret, secret, unset
from gateway.config.settings import DEFAULTS
from gateway.config.values import EncryptionKey
from gateway.credentials import (
    ALGORITHMS,
    AuthorizationCode,
    Basic,
    Certificate,
    Client,
    ClientAuthentication,
    ClientCredentials,
    FixedHeader,
    Grant,
    JwtBearer,
    OAuth,
    PluginSpec,
    Server,
    SigningKey,
    Spec,
    TokenExchange,
    signing_key,
)
from gateway.documents import Node, Section
from gateway.model import Secret

_PLACE = re.compile(r"\$\{(env|file):([^{}]+)\}|keyring")


def encryption_key(section: Section, folder: Path, state: Path, environ: Mapping[str, str]) -> EncryptionKey:
    """Return the source of the key; it is read, or created, when the first token is stored.

    Its file is relative to `state`; the keyring knows the key by `folder`.
    """
    text = section.text("encryption_key", DEFAULTS["stores.encryption_key"])
    match = _PLACE.fullmatch(text)
    if match is None:
        section.problem(
            "write ${env:NAME}, ${file:path} or keyring: the key itself is never written here", "encryption_key"
        )
        return EncryptionKey()
    if match[1] == "env":
        value = environ.get(match[2]) or (UNSET if isinstance(environ, LenientEnvironment) else None)
        if not value:
            section.problem(unset(match[2]), "encryption_key")
        return EncryptionKey(variable=(match[2], Secret(value or "")))
    if match[1] == "file":
        path = state / match[2]
        if path.parent != state and not path.parent.is_dir():
            section.problem(f"there is no folder {path.parent}", "encryption_key")
        return EncryptionKey(file=path)
    return EncryptionKey(keyring=str(folder))


_FIXED: Final = ("bearer", "token")
_FORM: Final = '{type: header, prefix: Bearer, value: "${env:NAME}"}'
"""The remedy for a static token under a name that other products use."""

OAUTH_TYPES: Final = ("client_credentials", "authorization_code", "token_exchange", "jwt_bearer")
TYPES: Final = ("header", "basic", *OAUTH_TYPES)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_FIELD = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")
_NOT_OURS = re.compile(
    r"connection|content-.*|cookie|expect|gateway-.*|host|keep-alive|origin|proxy-.*|te|trailer|transfer-encoding|upgrade"
)
_TOKEN_TYPES: Final = {
    "access_token": "urn:ietf:params:oauth:token-type:access_token",
    "id_token": "urn:ietf:params:oauth:token-type:id_token",
    "jwt": "urn:ietf:params:oauth:token-type:jwt",
    "id-jag": "urn:ietf:params:oauth:token-type:id-jag",
}


@dataclass(frozen=True, slots=True)
class SectionReading:
    """The context for secret references; `plugins` means that plugins may register further types."""

    folder: Path
    environ: Mapping[str, str]
    plugins: bool


def credentials(root: Section, reading: SectionReading) -> dict[str, Spec]:
    """Read all credentials by name, reporting problems."""
    sections = root.named_sections("credentials")
    specs = {name: _credential(name, section, reading) for name, section in sections.items()}
    for name, section in sections.items():
        _check_others(name, specs[name], specs, section)
    return {name: _with_owner(spec, specs) for name, spec in specs.items()}


def exempt(root: Section) -> list[Node]:
    """Return the options of credentials of plugins' types, in which any key may have a secret."""
    node = root.node.value.get("credentials") if isinstance(root.node.value, Mapping) else None
    sections = node.value.values() if node is not None and isinstance(node.value, Mapping) else ()
    sources = []
    for section in sections:
        kind = section.value.get("type") if isinstance(section.value, Mapping) else None
        if kind is not None and isinstance(kind.value, str) and kind.value not in TYPES:
            sources.append(section)
    return sources


def _credential(name: str, section: Section, reading: SectionReading) -> Spec:
    if not _NAME.fullmatch(name):
        section.problem(f"the name {name!r} must be of letters, digits, '.', '_' and '-'")
    section.require("type")
    kind = section.get("type")
    if kind is None or not isinstance(kind.value, str) or kind.value not in TYPES:
        if kind is not None and kind.value in _FIXED and not reading.plugins:
            section.problem(f"none is named {kind.value}: write {_FORM}", "type")
            return _read_plugged(name, "", section, reading)
        type = section.text("type") if reading.plugins else section.choice("type", TYPES)
        return _read_plugged(name, type, section, reading)
    match section.choice("type", TYPES):
        case "header":
            return _header(name, section, reading)
        case "basic":
            section.require("username", "password")
            username = section.text("username")
            if ":" in username:
                section.problem("a user name has no colon (RFC 7617)", "username")
            return Basic(name, username, secret(section, "password", reading.folder, reading.environ, plugins=True))
        case type:
            return _oauth(name, type, section, reading)


def _header(name: str, section: Section, reading: SectionReading) -> FixedHeader:
    section.require("value")
    field = section.text("header", "authorization").lower()
    if not _FIELD.fullmatch(field) or _NOT_OURS.fullmatch(field):
        section.problem(f"{field!r} is not a header that a credential can set", "header")
    prefix = section.text("prefix")
    value = secret(section, "value", reading.folder, reading.environ, plugins=True)
    if not _VALUE.fullmatch(prefix) or (not isinstance(value, PendingSecret) and not _VALUE.fullmatch(value.reveal())):
        section.problem("must be of visible ASCII characters and spaces", "value")
    return FixedHeader(name, field, prefix, value)


def _read_plugged(name: str, type: str, section: Section, reading: SectionReading) -> PluginSpec:
    options: dict[str, object] = {}
    for key in section:
        node = section.get(key)
        if node is None or key == "type":
            continue
        text = isinstance(node.value, str) and "${" in node.value
        options[key] = secret(section, key, reading.folder, reading.environ, plugins=True) if text else node.plain()
    return PluginSpec(name, type, options)


def _oauth(name: str, type: str, section: Section, reading: SectionReading) -> OAuth:
    section.require("issuer", "client_id")
    endpoints = {key: locations.url(section, key) or None for key in ("token_endpoint", "revocation_endpoint")}
    if type == "authorization_code":
        endpoints["authorization_endpoint"] = locations.url(section, "authorization_endpoint") or None
    certificate = _certificate(section, reading)
    key = _key(section, reading)
    server = Server(
        issuer=locations.url(section, "issuer"),
        network=network(section, DEFAULTS["credentials.<name>.network"]),
        certificate=certificate,
        authorities=_file(section, "authorities", reading),
        **endpoints,
    )
    return OAuth(
        name=name,
        grant=_grant(type, key, section),
        server=server,
        client=_client(type, key, certificate, section, reading),
        scope=section.texts("scope"),
        resource=_resource(section),
        dpop=section.flag("dpop"),
        title=section.text("title", name),
    )


def _grant(type: str, key: SigningKey | None, section: Section) -> Grant:
    match type:
        case "authorization_code":
            return AuthorizationCode(section.choice("callback", ("shared", "own")) == "own")
        case "token_exchange":
            section.require("subject")
            requested = section.choice("requested_token_type", _TOKEN_TYPES)
            return TokenExchange(
                subject=section.text("subject"),
                actor=section.text("actor") or None,
                audience=section.text("audience") or None,
                requested=_TOKEN_TYPES.get(requested),
                by_id_token=section.choice("subject_token_type", ("access_token", "id_token")) == "id_token",
            )
        case "jwt_bearer":
            claim, assertion = section.text("subject_claim") or None, section.text("assertion") or None
            subject = section.text("subject") or None
            if (key is None) == (assertion is None):
                section.problem("a jwt_bearer credential needs either private_key, or assertion: another credential")
            if claim is not None and subject is not None:
                section.problem("take subject, or subject_claim", "subject_claim")
            return JwtBearer(key, subject, claim, section.text("audience") or None, assertion, claim is not None)
        case _:
            return ClientCredentials()


def _client(
    type: str, key: SigningKey | None, certificate: Certificate | None, section: Section, reading: SectionReading
) -> Client:
    secret = optional_secret(section, "client_secret", reading.folder, reading.environ, plugins=True)
    named = section.choice("client_auth", [*ClientAuthentication])
    method = ClientAuthentication(named) if named else _usual(type, key, certificate, secret)
    needs = {
        ClientAuthentication.BASIC: ("client_secret", secret),
        ClientAuthentication.POST: ("client_secret", secret),
        ClientAuthentication.PRIVATE_KEY_JWT: ("private_key", key),
        ClientAuthentication.TLS: ("certificate", certificate),
        ClientAuthentication.SELF_SIGNED_TLS: ("certificate", certificate),
    }
    if method is ClientAuthentication.NONE and not named and type not in ("authorization_code", "jwt_bearer"):
        section.problem(
            "the client authentication is missing: give client_secret, private_key or certificate, or client_auth: none"
        )
    if method in needs and needs[method][1] is None:
        section.problem(f"{method} needs {needs[method][0]}", "client_auth")
    return Client(section.text("client_id"), secret, method, key)


def _usual(
    type: str, key: SigningKey | None, certificate: Certificate | None, secret: Secret | None
) -> ClientAuthentication | None:
    """Return the default of `client_auth`; None leaves it to the server's metadata."""
    if secret is not None:
        return None
    if certificate is not None:
        return ClientAuthentication.TLS
    if key is not None and type != "jwt_bearer":
        return ClientAuthentication.PRIVATE_KEY_JWT
    return ClientAuthentication.NONE


def _key(section: Section, reading: SectionReading) -> SigningKey | None:
    pem = optional_secret(section, "private_key", reading.folder, reading.environ, plugins=True)
    id, algorithm = section.text("key_id") or None, section.choice("algorithm", ALGORITHMS) or None
    if pem is None:
        return None
    if isinstance(pem, PendingSecret):
        if algorithm is None:
            section.problem("a private_key of a plugin needs algorithm beside it", "private_key")
        return SigningKey(pem, algorithm or "ES256", id)
    if pem.reveal() == UNSET:
        return SigningKey(pem, algorithm or "ES256", id)
    try:
        return signing_key(pem, id, algorithm)
    except ValueError as error:
        if pem.reveal():
            section.problem(str(error), "private_key")
        return None


def _certificate(section: Section, reading: SectionReading) -> Certificate | None:
    chain = _file(section, "certificate", reading)
    key = _file(section, "certificate_key", reading)
    if chain is None and key is not None:
        section.problem("needs certificate beside it", "certificate_key")
    return Certificate(chain, key or chain) if chain is not None else None


def _file(section: Section, key: str, reading: SectionReading) -> Path | None:
    text = section.text(key)
    if not text:
        return None
    path = reading.folder / text
    section.report.files.add(path)
    if not path.is_file():
        section.problem(f"there is no file {path}", key)
    return path


def _resource(section: Section) -> str | None:
    text = section.text("resource")
    if text and (not re.fullmatch(r"[a-z][a-z0-9+.-]*:[!-~]+", text) or "#" in text):
        section.problem("must be an absolute URI without a fragment (RFC 8707)", "resource")
    return text or None


def _check_others(name: str, spec: Spec, known: Mapping[str, Spec], section: Section) -> None:
    for key, other in _others(spec):
        if other not in known:
            section.problem(f"there is no credential {other!r}", key)
        elif not isinstance(known[other], OAuth):
            section.problem(f"{other!r} has no token: name a credential of {', '.join(OAUTH_TYPES)}", key)
        elif _circles(name, other, known):
            section.problem(f"{name!r} would be made of itself", key)


def _others(spec: Spec) -> list[tuple[str, str]]:
    match spec:
        case OAuth(grant=TokenExchange(subject=subject, actor=actor)):
            return [("subject", subject)] * bool(subject) + ([("actor", actor)] if actor is not None else [])
        case OAuth(grant=JwtBearer(assertion=str() as assertion)):
            return [("assertion", assertion)]
        case _:
            return []


def _circles(name: str, other: str, known: Mapping[str, Spec]) -> bool:
    seen, pending = set(), [other]
    while pending:
        one = pending.pop()
        if one == name:
            return True
        if one in known and one not in seen:
            seen.add(one)
            pending += [next_one for _, next_one in _others(known[one])]
    return False


def _with_owner(spec: Spec, known: Mapping[str, Spec], depth: int = 0) -> Spec:
    """Return the credential marked as per person if it is derived from a person's token."""
    if not isinstance(spec, OAuth) or depth > len(known):
        return spec
    made_of = [_with_owner(known[other], known, depth + 1) for _, other in _others(spec) if other in known]
    personal = any(isinstance(other, OAuth) and other.per_person for other in made_of)
    if personal and isinstance(spec.grant, TokenExchange | JwtBearer):
        return replace(spec, grant=replace(spec.grant, per_person=True))
    return spec
