"""What gateway.yaml says, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gateway.callers.nouns import Blocks, Method, Roles
from gateway.config.approvals import Approvals
from gateway.config.audit import Audit, Telemetry
from gateway.config.mcp import Mcp
from gateway.config.upstreams import Upstream
from gateway.credentials import Spec
from gateway.model import Secret
from gateway.policy import Policy


class Unproven(StrEnum):
    """What a call without view proof is worth."""

    AS_MODEL = "as-model"
    DENY = "deny"


class Storage(StrEnum):
    """Where `localStorage` of a view is kept: in its page, as long as that lives, or on the gateway for its person."""

    PAGE = "page"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class Origins:
    """Three sites that share nothing; `apps` holds `{app}`."""

    console: str
    apps: str
    sandbox: str

    def app(self, name: str) -> str:
        """The origin of the app `name`."""
        return self.apps.replace("{app}", name)


@dataclass(frozen=True, slots=True)
class Server:
    """Where the gateway listens, and under which names it is known. `public_url` has no slash at its end."""

    host: str
    port: int
    public_url: str
    origins: Origins
    trusted_proxies: Blocks = ()
    busy_poll: bool = True


@dataclass(frozen=True, slots=True)
class UpstreamApp:
    """The app that an upstream has at the address `resource`; `tool` is called, and its result is what it shows."""

    upstream: str
    resource: str
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class App:
    """One app, and the policy under which it runs; `stamp` differs once a file of its folder changed.

    `source` is a folder, an HTML file, or the app of an upstream.
    """

    id: str
    source: Path | UpstreamApp
    policy: Policy
    unproven: Unproven
    title: str
    trust_view_gestures: bool
    stamp: str = ""
    permissions: tuple[str, ...] = ()
    storage: Storage = Storage.PAGE


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """Where the key is with which tokens and storage are sealed: one of the three.

    `variable` has its content beside it.
    """

    file: Path | None = None
    variable: tuple[str, Secret] | None = None
    keyring: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration; all paths are absolute. `database` is an SQLAlchemy URL, `log` is `text` or `json`."""

    path: Path
    server: Server
    auth: tuple[Method, ...]
    roles: Roles
    apps: Mapping[str, App]
    upstreams: Mapping[str, Upstream]
    credentials: Mapping[str, Spec]
    database: Secret
    journal: Path
    encryption_key: EncryptionKey
    approvals: Approvals
    audit: Audit
    telemetry: Telemetry
    log: str
    plugins: tuple[str, ...]
    mcp: Mcp
