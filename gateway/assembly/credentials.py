"""Builds the credentials of a gateway: their sources, the token store, and the login flow that connects accounts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

from gateway.backends.connect import Connections, tls_context
from gateway.backends.http import HttpBackend
from gateway.config import Config, EncryptionKey
from gateway.config.secrets import PendingSecret
from gateway.credentials import AuthorizationCode, Basic, Fixed, OAuth, Plugged, Spec
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
from gateway.exchange.cookies import CookieJars
from gateway.exchange.oauth_tokens import OAuthTokens, Ownership, TokenRequests, count_requests
from gateway.exchange.send import JAR
from gateway.hooks import Hooks, make_plugin
from gateway.hookspecs import CredentialFactory
from gateway.model import Backend, Json, Principal
from gateway.stores.mcp_sessions import reseal_sessions
from gateway.stores.page_storage import PageStorage
from gateway.stores.sealing import GivenKeys, KeyFile, KeyRing, KeySource, SystemKeyring
from gateway.stores.sessions import Hints
from gateway.stores.sql import Database
from gateway.stores.tokens import TokenStore
from gateway.stores.view_state import reseal_launches
from gateway.telemetry import Metrics


class Accounts:
    """All configured credentials, and the key ring that encrypts stored tokens.

    `servers` are the authorization servers by credential; only OAuth credentials have one.
    """

    def __init__(
        self,
        config: Config,
        connections: Connections,
        database: Database,
        hooks: Hooks,
        metrics: Metrics | None = None,
    ) -> None:
        self._config = config
        self._database = database
        self._hooks = hooks
        self._metrics = metrics or Metrics()
        self.path = config.path
        self.console = config.server.origins.console
        self.ring = KeyRing(key_source(config.encryption_key))
        self.store = TokenStore(database, self.ring)
        self.storage = PageStorage(database, self.ring)
        self.hints = Hints(database, self.ring)
        self.specs: Mapping[str, Spec] = config.credentials
        for name in (*self.specs, JAR):
            self._metrics.secrets_masked.labels(name)  # an alert sees the first increase of a counter from 0 only
        self.servers = {
            name: _server(spec, connections) for name, spec in config.credentials.items() if isinstance(spec, OAuth)
        }
        self.fetched: dict[str, OAuthTokens] = {}
        for name, spec in config.credentials.items():
            if isinstance(spec, OAuth):
                self.fetched[name] = self._oauth_tokens(spec)
        self.jars = CookieJars()
        self.absences = MissingAccounts()
        self.connecting = Connecting(
            self.specs, self.servers, self.fetched, self.store, self.jars, f"{self.console}{CALLBACK}", self.absences
        )
        types = hooks.credential_types()
        self.authenticator = Authenticator({name: self._source(spec, types) for name, spec in self.specs.items()})

    async def start(self) -> None:
        """Resolve secrets from plugins and load the key of what is stored. Raises `StartError`."""
        for credential, secret in pending_secrets(self.specs):
            secret.resolve(await self._hooks.resolve_secret(secret.reference, f"credential {credential!r}"))
        self.ring.load()

    async def reseal(self) -> dict[str, Json]:
        """Seal all that is stored with the newest key, and return what was done."""
        tokens, unreadable = await self.store.reseal()
        pages, unreadable_pages = await self.storage.reseal()
        logins, unreadable_logins = await self.hints.reseal()
        await reseal_sessions(self._database, self.ring)
        await reseal_launches(self._database, self.ring)
        return {
            "key": self.ring.ids[0],
            "sealed": tokens,
            "unreadable": unreadable,
            "pages": pages,
            "unreadable_pages": unreadable_pages,
            "logins": logins,
            "unreadable_logins": unreadable_logins,
        }

    def connect_url(self, credential: str, principal: Principal) -> str:
        """Return the console page where this principal connects an account; it has no secret and no side effect."""
        return f"{self.console}/connect/{quote(credential, safe='')}?for={audience(principal)}"

    def _oauth_tokens(self, spec: OAuth) -> OAuthTokens:
        personal = isinstance(spec.grant, AuthorizationCode)
        ownership = Ownership(
            per_person=spec.per_person,
            connect_url=(lambda principal: self.connect_url(spec.name, principal)) if personal else None,
            account=spec.client.id,
        )
        obtain = count_requests(TokenRequests(spec, self.servers[spec.name], self.fetched), spec.name, self._metrics)
        return OAuthTokens(spec.name, obtain, self.store, ownership)

    def _source(self, spec: Spec, types: Mapping[str, CredentialFactory]) -> CredentialSource:
        match spec:
            case OAuth():
                return self.fetched[spec.name]
            case Fixed() | Basic():
                return FixedCredential(spec)
            case Plugged():
                if spec.type not in types:
                    known = ", ".join(types) or "no such type"
                    raise StartError(f"credential {spec.name!r} has the type {spec.type!r}; plugins bring {known}")
                what = f"credential {spec.name!r}"
                return PluginCredential(
                    spec.name, make_plugin(types[spec.type], what, spec.name, spec.options, "headers")
                )


def audience(principal: Principal) -> str:
    """Return a pseudonym of a person for links: it does not reveal the identity and grants nothing."""
    return hashlib.sha256(b"webmcp-gateway connect\n" + principal.person.encode()).hexdigest()[:16]


def pending_secrets(specs: Mapping[str, Spec]) -> list[tuple[str, PendingSecret]]:
    """Return the secrets that plugins must resolve, with the names of their credentials."""
    found: list[tuple[str, PendingSecret]] = []
    for name, spec in specs.items():
        match spec:
            case OAuth(client=client):
                secrets: list[object] = [client.secret, client.key.pem if client.key is not None else None]
            case Fixed(value=value):
                secrets = [value]
            case Basic(password=password):
                secrets = [password]
            case Plugged(options=options):
                secrets = list(options.values())
        found += [(name, secret) for secret in secrets if isinstance(secret, PendingSecret)]
    return found


def key_source(key: EncryptionKey) -> KeySource:
    """Return the source of the key that encrypts stored tokens."""
    if key.variable is not None:
        return GivenKeys(*key.variable)
    if key.keyring is not None:
        return SystemKeyring(key.keyring)
    if key.file is None:
        raise StartError("stores.encryption_key names no place")
    return KeyFile(key.file)


def _server(spec: OAuth, connections: Connections) -> Backend:
    certificate = spec.server.certificate
    chain, key = (certificate.chain, certificate.key) if certificate is not None else (None, None)
    return HttpBackend(spec, connections, tls_context(spec.server.authorities, chain, key))
