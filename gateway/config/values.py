"""The content of gateway.yaml as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gateway.callers.entitlements import AccessRule
from gateway.callers.methods import Blocks, ClientHeader, HostSite, Method, Roles
from gateway.config.approvals import ApprovalSettings
from gateway.config.audit import Audit, Telemetry
from gateway.config.cluster import ClusterSettings
from gateway.config.upstreams import UpstreamSettings
from gateway.credentials import Spec
from gateway.documents import Section
from gateway.model import LARGEST_BODY, Json, Secret
from gateway.policy import Policy


@dataclass(frozen=True, slots=True)
class Mcp:
    """`sessions` limits the open sessions of the handshake protocols per mount; `session_idle` is in seconds.

    `sessions_each` limits those of one principal, and `views_each` their live views. `bodies` limits the bytes in
    transit beside the frames of the bridge, `bodies_each` those of one principal.
    """

    fast_path: bool = True
    sessions: int = 10_000
    sessions_each: int = 1000
    session_idle: float = 1800.0
    views_each: int = 32
    bodies: int = 1024 * 1024 * 1024
    bodies_each: int = 4 * LARGEST_BODY


def read_mcp(section: Section) -> Mcp:
    """Read the section; `Mcp` has the defaults."""
    default = Mcp()
    idle = section.duration("session_idle", default.session_idle)
    if idle <= 0:
        section.problem("must be longer than nothing, such as 30m", "session_idle")
    bodies, bodies_each = section.size("bodies", default.bodies), section.size("bodies_each", default.bodies_each)
    for key, size in (("bodies", bodies), ("bodies_each", bodies_each)):
        if size < LARGEST_BODY:
            section.problem(f"must leave room for the largest body, {LARGEST_BODY // 2**20}MiB", key)
    return Mcp(
        fast_path=section.flag("fast_path", default.fast_path),
        sessions=section.integer("sessions", default.sessions, minimum=1),
        sessions_each=section.integer("sessions_each", default.sessions_each, minimum=1),
        session_idle=idle,
        views_each=section.integer("views_each", default.views_each, minimum=1),
        bodies=bodies,
        bodies_each=bodies_each,
    )


class Unproven(StrEnum):
    """The treatment of a call without view proof."""

    AS_MODEL = "as-model"
    DENY = "deny"


class StorageKind(StrEnum):
    """The store of a view's `localStorage`: its page, until that closes, or the gateway, per person."""

    PAGE = "page"
    GATEWAY = "gateway"


class SandboxKind(StrEnum):
    """The origin of an app's frame in our host: opaque, or its own, of this app and this principal."""

    OPAQUE = "opaque"
    DEDICATED = "dedicated"


class HttpClientKind(StrEnum):
    """The client that sends the gateway's own requests: its own, or aiohttp's."""

    GATEWAY = "gateway"
    AIOHTTP = "aiohttp"


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of isolated kinds of site; `apps` contains `{app}`, and `dedicated` begins with `{id}`."""

    console: str
    apps: str
    sandbox: str
    dedicated: str = ""

    def app(self, name: str) -> str:
        """Return the origin of the app `name`."""
        return self.apps.replace("{app}", name)

    def frame(self, label: str) -> str:
        """Return the dedicated origin whose first label is `label`."""
        return self.dedicated.replace("{id}", label)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The listen address and public names of the gateway. `public_url` has no trailing slash.

    At most `connections` clients may be connected, `connections_each` from one address; a person may have
    `requests_each` requests in flight. `client_header` is None if it is unknown which header the proxies write.
    `admin` is the address and port of a listener for operators, `admin_hosts` are its names. At the end `/readyz` says
    so for `announce` seconds, then running calls have `drain` seconds.
    `state_dir` is the folder of all that the gateway writes; None is the folder of gateway.yaml.
    """

    host: str
    port: int
    public_url: str
    origins: Origins
    state_dir: Path | None = None
    trusted_proxies: Blocks = ()
    client_header: ClientHeader | None = None
    busy_poll: bool = False
    fast_path: bool = True
    http_client: HttpClientKind = HttpClientKind.GATEWAY
    connections: int = 10_000
    connections_each: int = 1000
    requests_each: int = 1000
    admin: tuple[str, int] | None = None
    admin_hosts: tuple[str, ...] = ()
    announce: float = 5.0
    drain: float = 60.0


@dataclass(frozen=True, slots=True)
class UpstreamApp:
    """An upstream's app at the resource `resource`; the result of calling `tool` is its initial data."""

    upstream: str
    resource: str
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class BackendApp:
    """An app whose pages the backend `backend` of its policy renders, the first one at the path `start`."""

    backend: str
    start: str | None = None


@dataclass(frozen=True, slots=True)
class App:
    """One app with its policy; `stamp` changes with the files of its folder.

    `source` is a folder, an HTML file, the app of an upstream, or a backend that renders its pages. `story` is what the
    console can play: an object with `title` and `steps`, or None. `access` None: every caller may use it. `start` is
    the URL at which it begins, on its own site. `domain` is the dedicated origin that other hosts are
    asked for; empty for none.
    """

    id: str
    source: Path | UpstreamApp | BackendApp
    policy: Policy
    unproven: Unproven
    title: str
    trust_view_gestures: bool
    stamp: str = ""
    permissions: tuple[str, ...] = ()
    storage: StorageKind = StorageKind.PAGE
    story: Json = None
    access: AccessRule | None = None
    start: str = "/"
    sandbox: SandboxKind = SandboxKind.OPAQUE
    domain: str = ""

    @property
    def dedicated(self) -> bool:
        """True if its frames in our host have an origin of their own."""
        return self.sandbox is SandboxKind.DEDICATED


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """The source of the key that encrypts tokens and storage: one of the three.

    `variable` is the name of an environment variable, and its value.
    """

    file: Path | None = None
    variable: tuple[str, Secret] | None = None
    keyring: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration; all paths are absolute. `database` is an SQLAlchemy URL, `log` is `text` or `json`.

    `files` are the files of secrets and certificates that gateway.yaml names, with a digest of their contents.
    """

    path: Path
    server: ServerSettings
    auth: tuple[Method, ...]
    roles: Roles
    apps: Mapping[str, App]
    upstreams: Mapping[str, UpstreamSettings]
    credentials: Mapping[str, Spec]
    database: Secret
    redis: Secret | None
    journal: Path
    encryption_key: EncryptionKey
    approvals: ApprovalSettings
    audit: Audit
    telemetry: Telemetry
    log: str
    access_log: bool
    plugins: tuple[str, ...]
    mcp: Mcp
    files: Mapping[Path, str] = field(default_factory=dict)
    hosts: tuple[HostSite, ...] = ()
    cluster: ClusterSettings | None = None

    @property
    def state(self) -> Path:
        """The folder of everything that the gateway writes."""
        return self.server.state_dir or self.path.parent
