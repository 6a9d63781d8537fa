"""Builds the credentials of a gateway: their sources, the token store, and the login flow that connects accounts."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from urllib.parse import quote

from gateway.backends.connect import Connections, tls_context
from gateway.backends.http import HttpBackend
from gateway.config import Config, EncryptionKey, comparable
from gateway.config.secrets import PendingSecret
from gateway.credentials import AuthorizationCode, Basic, FixedHeader, OAuth, PluginSpec, Spec, token_source
from gateway.doors.access import CALLBACK
from gateway.errors import StartError
from gateway.exchange.authenticate import (
    Authenticator,
    CredentialSource,
    FixedCredential,
    MissingAccounts,
    PluginCredential,
)
from gateway.exchange.connecting import Connecting
from gateway.exchange.cookies import MemoryCookieJars
from gateway.exchange.filter import NAME
from gateway.exchange.oauth_tokens import OAuthTokens, Ownership, TokenRequests, count_requests
from gateway.exchange.send import JAR
from gateway.hooks import Hooks, make_plugin
from gateway.hookspecs import CredentialFactory
from gateway.model import Json, Principal
from gateway.ports.cookies import CookieJars
from gateway.stores.cookie_jars import DatabaseCookieJars, reseal_jars
from gateway.stores.mcp_sessions import reseal_sessions
from gateway.stores.page_storage import PageStorage
from gateway.stores.sealing import GivenKeys, KeyFile, KeyRing, KeySource, SystemKeyring
from gateway.stores.sessions import Hints
from gateway.stores.sql import Database
from gateway.stores.tokens import TokenStore
from gateway.stores.view_state import reseal_launches
from gateway.telemetry import Metrics

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class CredentialSet:
    """The credentials of one configuration by name, each with what it was made of; only those of OAuth have a server.

    `servers` are the authorization servers, `tokens` the tokens that are obtained there.
    """

    specs: Mapping[str, Spec] = field(default_factory=dict)
    made_of: Mapping[str, object] = field(default_factory=dict)
    servers: Mapping[str, HttpBackend] = field(default_factory=dict)
    tokens: Mapping[str, OAuthTokens] = field(default_factory=dict)
    sources: Mapping[str, CredentialSource] = field(default_factory=dict)


class _Current(Mapping[str, T]):
    """A live mapping of one part of the current credentials."""

    def __init__(self, part: Callable[[], Mapping[str, T]]) -> None:
        self._part = part

    def __getitem__(self, name: str) -> T:
        return self._part()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._part())

    def __len__(self) -> int:
        return len(self._part())


class Accounts:
    """All configured credentials, which may change, and the key ring that encrypts stored tokens."""

    def __init__(
        self,
        config: Config,
        connections: Connections,
        database: Database,
        hooks: Hooks,
        metrics: Metrics | None = None,
    ) -> None:
        self._database = database
        self._connections = connections
        self._hooks = hooks
        self._metrics = metrics or Metrics()
        self.path = config.path
        self.console = config.server.origins.console
        self.ring = KeyRing(key_source(config.encryption_key))
        self.store = TokenStore(database, self.ring)
        self.storage = PageStorage(database, self.ring)
        self.hints = Hints(database, self.ring)
        self.jars: CookieJars = (
            DatabaseCookieJars(database, self.ring) if config.cluster is not None else MemoryCookieJars()
        )
        self.absences = MissingAccounts()
        self.now = CredentialSet()
        self._usable: Mapping[str, CredentialSource] = {}
        """Also removed credentials, for requests that began under a policy that names them: no later one can."""
        self.specs: Mapping[str, Spec] = _Current(lambda: self.now.specs)
        self.servers: Mapping[str, HttpBackend] = _Current(lambda: self.now.servers)
        self.tokens: Mapping[str, OAuthTokens] = _Current(lambda: self.now.tokens)
        self.authenticator = Authenticator(_Current(lambda: self._usable))
        self.connecting = Connecting(
            self.specs, self.servers, self.tokens, self.store, self.jars, f"{self.console}{CALLBACK}", self.absences
        )
        self.now = self._make(config)
        self._usable = self.now.sources
        self._count_from_zero((*self.specs, JAR, NAME))

    async def start(self) -> None:
        """Resolve secrets from plugins and load the key of what is stored. Raises `StartError`."""
        await self._resolve(self.specs)
        self.ring.load()

    async def reseal(self) -> dict[str, Json]:
        """Seal all that is stored with the newest key, and return what was done."""
        tokens, unreadable = await self.store.reseal()
        pages, unreadable_pages = await self.storage.reseal()
        logins, unreadable_logins = await self.hints.reseal()
        await reseal_sessions(self._database, self.ring)
        await reseal_launches(self._database, self.ring)
        await reseal_jars(self._database, self.ring)
        return {
            "key": self.ring.ids[0],
            "sealed": tokens,
            "unreadable": unreadable,
            "pages": pages,
            "unreadable_pages": unreadable_pages,
            "logins": logins,
            "unreadable_logins": unreadable_logins,
        }

    async def prepare(self, config: Config) -> CredentialSet:
        """Return the credentials of another configuration; unchanged ones are the same objects. Raises `StartError`."""
        credential_set = await asyncio.to_thread(self._make, config)
        specs = self.now.specs.values()
        await self._resolve(
            {name: spec for name, spec in credential_set.specs.items() if not any(spec is one for one in specs)}
        )
        return credential_set

    def replace(self, credential_set: CredentialSet) -> list[HttpBackend]:
        """Use other credentials from now on; return the clients of servers that only the replaced ones used."""
        before, self.now = self.now, credential_set
        self._usable = {**self._usable, **credential_set.sources}
        self._count_from_zero(credential_set.specs)
        for name, tokens in credential_set.tokens.items():
            if name in before.tokens and before.tokens[name] is not tokens:
                tokens.take_over(before.tokens[name])
        return [server for name, server in before.servers.items() if credential_set.servers.get(name) is not server]

    def connect_url(self, credential: str, principal: Principal) -> str:
        """Return the console page where this principal connects an account; it has no secret and no side effect."""
        return f"{self.console}/connect/{quote(credential, safe='')}?for={audience(principal)}"

    def _count_from_zero(self, names: Iterable[str]) -> None:
        for name in names:
            self._metrics.secrets_masked.labels(name)  # an alert sees the first increase of a counter from 0 only

    async def _resolve(self, specs: Mapping[str, Spec]) -> None:
        for credential, secret in pending_secrets(specs):
            secret.resolve(await self._hooks.resolve_secret(secret.reference, f"credential {credential!r}"))

    def _make(self, config: Config) -> CredentialSet:
        before = self.now
        made_of = {name: _made_of(name, config) for name in config.credentials}
        specs = {
            name: before.specs[name] if before.made_of.get(name) == made_of[name] else spec
            for name, spec in config.credentials.items()
        }
        servers: dict[str, HttpBackend] = {}
        tokens: dict[str, OAuthTokens] = {}
        sources: dict[str, CredentialSource] = {}
        types = self._hooks.credential_types()
        for name, spec in specs.items():
            same = before.specs.get(name) is spec
            if isinstance(spec, OAuth):
                servers[name] = before.servers[name] if same else _server(spec, self._connections)
                tokens[name] = before.tokens[name] if same else self._tokens_of(spec, servers[name], specs)
            sources[name] = before.sources[name] if same else self._source(spec, tokens, types)
        return CredentialSet(specs, made_of, servers, tokens, sources)

    def _tokens_of(self, spec: OAuth, server: HttpBackend, specs: Mapping[str, Spec]) -> OAuthTokens:
        source = token_source(spec.name, specs)
        ownership = Ownership(
            per_person=spec.per_person,
            connect_url=partial(self.connect_url, spec.name) if isinstance(spec.grant, AuthorizationCode) else None,
            account=f"{spec.client.id} {source}",
            source=source,
        )
        obtain = count_requests(TokenRequests(spec, server, self.tokens), spec.name, self._metrics)
        return OAuthTokens(spec.name, obtain, self.store, ownership)

    def _source(
        self, spec: Spec, tokens: Mapping[str, OAuthTokens], types: Mapping[str, CredentialFactory]
    ) -> CredentialSource:
        match spec:
            case OAuth():
                return tokens[spec.name]
            case FixedHeader() | Basic():
                return FixedCredential(spec)
            case PluginSpec():
                if spec.type not in types:
                    known = ", ".join(types) or "no such type"
                    raise StartError(f"credential {spec.name!r} has the type {spec.type!r}; plugins bring {known}")
                what = f"credential {spec.name!r}"
                return PluginCredential(
                    spec.name, make_plugin(types[spec.type], what, spec.name, spec.options, "headers")
                )


def _made_of(name: str, config: Config) -> object:
    """Return what a credential is made of: its settings, the content of its files, and the tokens of others."""
    spec = config.credentials[name]
    if not isinstance(spec, OAuth):
        return comparable(spec)
    certificate = spec.server.certificate
    files = (spec.server.authorities, *((certificate.chain, certificate.key) if certificate is not None else ()))
    return (
        comparable(spec),
        [config.files.get(file) for file in files if file is not None],
        token_source(name, config.credentials),
    )


def audience(principal: Principal) -> str:
    """Return a pseudonym of a person for links: it does not reveal the identity and grants nothing."""
    return hashlib.sha256(b"webmcp-gateway connect\n" + principal.person.encode()).hexdigest()[:16]


def pending_secrets(specs: Mapping[str, Spec]) -> list[tuple[str, PendingSecret]]:
    """Return the secrets that plugins must resolve, with the names of their credentials."""
    secrets_found: list[tuple[str, PendingSecret]] = []
    for name, spec in specs.items():
        match spec:
            case OAuth(client=client):
                secrets: list[object] = [client.secret, client.key.pem if client.key is not None else None]
            case FixedHeader(value=value):
                secrets = [value]
            case Basic(password=password):
                secrets = [password]
            case PluginSpec(options=options):
                secrets = list(options.values())
        secrets_found += [(name, secret) for secret in secrets if isinstance(secret, PendingSecret)]
    return secrets_found


def key_source(key: EncryptionKey) -> KeySource:
    """Return the source of the key that encrypts stored tokens."""
    if key.variable is not None:
        return GivenKeys(*key.variable)
    if key.keyring is not None:
        return SystemKeyring(key.keyring)
    if key.file is None:
        raise StartError("stores.encryption_key names no place")
    return KeyFile(key.file)


def _server(spec: OAuth, connections: Connections) -> HttpBackend:
    certificate = spec.server.certificate
    chain, key = (certificate.chain, certificate.key) if certificate is not None else (None, None)
    return HttpBackend(spec, connections, tls_context(spec.server.authorities, chain, key))
