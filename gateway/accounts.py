"""Builds the credentials of a gateway: each one's source, the store of their tokens, and how persons connect theirs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import quote

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.backends.tls import tls_context
from gateway.config import Config, EncryptionKey
from gateway.config.secrets import PendingSecret
from gateway.credentials import AuthorizationCode, Basic, Fixed, OAuth, Plugged, Spec
from gateway.doors.access import CALLBACK
from gateway.errors import StartError
from gateway.exchange.absent import Absences
from gateway.exchange.authenticate import Authenticator, OfPlugin, Source, Unchanging
from gateway.exchange.connecting import Connecting
from gateway.exchange.cookies import CookieJars
from gateway.exchange.fetched import Fetched, Ownership
from gateway.exchange.obtain import Obtaining, counted
from gateway.hooks import Hooks, made
from gateway.hookspecs import CredentialFactory
from gateway.model import Backend, Principal
from gateway.stores.hints import Hints
from gateway.stores.page_storage import PageStorage
from gateway.stores.sealing import GivenKeys, KeyFile, KeyRing, KeySource, SystemKeyring
from gateway.stores.sql import Database
from gateway.stores.tokens import TokenStore
from gateway.telemetry import Metrics


class Accounts:
    """All credentials of a configuration, and what their key seals.

    `servers` are the authorization servers of those that have one.
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
        self._hooks = hooks
        self._metrics = metrics or Metrics()
        self.path = config.path
        self.console = config.server.origins.console
        self.ring = KeyRing(key_source(config.encryption_key))
        self.store = TokenStore(database, self.ring)
        self.storage = PageStorage(database, self.ring)
        self.hints = Hints(database, self.ring)
        self.specs: Mapping[str, Spec] = config.credentials
        self.servers = {
            name: _server(spec, connections) for name, spec in config.credentials.items() if isinstance(spec, OAuth)
        }
        self.fetched: dict[str, Fetched] = {}
        for name, spec in config.credentials.items():
            if isinstance(spec, OAuth):
                self.fetched[name] = self._fetched(spec)
        self.jars = CookieJars()
        self.absences = Absences()
        self.connecting = Connecting(
            self.specs, self.servers, self.fetched, self.store, self.jars, f"{self.console}{CALLBACK}", self.absences
        )
        types = hooks.credential_types()
        self.authenticator = Authenticator({name: self._source(spec, types) for name, spec in self.specs.items()})

    async def start(self) -> None:
        """Have the secrets of plugins, and look whether the keys of stored tokens are there. Raises StartError."""
        for credential, secret in pending(self.specs):
            secret.resolve(await self._hooks.resolve_secret(secret.reference, f"credential {credential!r}"))
        if self.fetched:
            self.ring.load()

    def connect_url(self, credential: str, principal: Principal) -> str:
        """The console's page where this principal connects an account. It holds no secret and starts nothing."""
        return f"{self.console}/connect/{quote(credential, safe='')}?for={audience(principal)}"

    def _fetched(self, spec: OAuth) -> Fetched:
        personal = isinstance(spec.grant, AuthorizationCode)
        ownership = Ownership(
            per_person=spec.per_person,
            connect_url=(lambda principal: self.connect_url(spec.name, principal)) if personal else None,
            account=spec.client.id,
        )
        obtain = counted(Obtaining(spec, self.servers[spec.name], self.fetched), spec.name, self._metrics)
        return Fetched(spec.name, obtain, self.store, ownership)

    def _source(self, spec: Spec, types: Mapping[str, CredentialFactory]) -> Source:
        match spec:
            case OAuth():
                return self.fetched[spec.name]
            case Fixed() | Basic():
                return Unchanging(spec)
            case Plugged():
                if spec.type not in types:
                    known = ", ".join(types) or "no such type"
                    raise StartError(f"credential {spec.name!r} has the type {spec.type!r}; plugins bring {known}")
                what = f"credential {spec.name!r}"
                return OfPlugin(spec.name, made(types[spec.type], what, spec.name, spec.options, "headers"))


def audience(principal: Principal) -> str:
    """What stands for a person in a link: nobody learns from it who it is, and it gives nobody anything."""
    return hashlib.sha256(b"webmcp-gateway connect\n" + principal.person.encode()).hexdigest()[:16]


def pending(specs: Mapping[str, Spec]) -> list[tuple[str, PendingSecret]]:
    """The secrets that plugins give, with the names of their credentials."""
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
    """Where the key of stored tokens is."""
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
