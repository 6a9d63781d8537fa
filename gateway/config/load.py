"""Loads gateway.yaml and its policies; every problem of all these files is reported together."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gateway.callers.entitlements import read_access
from gateway.callers.methods import ClientHeader, Method, OAuthIssuer, ProxyAuth
from gateway.config import audit as record
from gateway.config import locations
from gateway.config.approvals import read_approvals
from gateway.config.callers import blocks, check_reach, read_auth, read_hosts, read_roles
from gateway.config.cluster import read_cluster, secret_nodes
from gateway.config.credentials import SectionReading as CredentialReading
from gateway.config.credentials import credentials as read_credentials
from gateway.config.credentials import encryption_key, exempt
from gateway.config.locations import read_state_dir, real_path
from gateway.config.secrets import MAX_SECRET, config_text, misplaced_secrets
from gateway.config.settings import DEFAULTS
from gateway.config.upstreams import UpstreamSettings, environments, read_upstream
from gateway.config.values import (
    App,
    BackendApp,
    Config,
    HttpClientKind,
    Origins,
    SandboxKind,
    ServerSettings,
    StorageKind,
    Unproven,
    UpstreamApp,
    read_mcp,
)
from gateway.config.watch import stamp
from gateway.credentials import Spec
from gateway.documents import Section, read_document, suggestion
from gateway.documents.reader import read_bytes
from gateway.errors import DocumentError, Problem
from gateway.model import Json
from gateway.policy import Organisation, Policy, any_tool, load_organisation, load_policy

SECRETS = (
    "authorization",
    "client_secret",
    "database",
    "encryption_key",
    "key",
    "password",
    "private_key",
    "redis",
    "secret",
    "value",
)
"""The keys whose values may come from the environment or a file."""

_APP_ADDRESS = re.compile(r"(ui|mcp-app)://[!-~]{1,1024}")

PERMISSIONS = ("camera", "microphone", "geolocation", "clipboard-write")
"""The browser permissions that a page may use, under their permissions policy names."""

RESERVED = ("http", "open", "list", "call", "webmcp")
"""Reserved app ids: their tools would be confused with the gateway's own."""

ANNOUNCE = 5.0
DRAIN = 60.0
"""Defaults of `server.drain`, in seconds."""

_START = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2047}", re.ASCII)

_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9])?", re.ASCII)

_APP_ID = re.compile(r"[a-z][a-z0-9-]{0,23}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Reading:
    """The usable part of gateway.yaml, named `file` in messages, and its problems.

    `config` lacks the apps of unusable policies or missing sources, which are in `broken_apps`; it is None if
    gateway.yaml itself is unusable. `files` are the files of secrets and certificates that it names.
    """

    file: str
    config: Config | None
    problems: tuple[Problem, ...] = ()
    broken_apps: frozenset[str] = frozenset()
    files: frozenset[Path] = frozenset()


def load_config(path: Path, environ: Mapping[str, str]) -> Config:
    """Load the configuration in `path`. Raises DocumentError with all problems of it and of its policies."""
    reading = read_config(path, environ)
    if reading.problems or reading.config is None:
        raise DocumentError(reading.problems)
    return reading.config


def read_config(path: Path, environ: Mapping[str, str]) -> Reading:
    """Load the usable part of the configuration in `path`, and all problems of it and of its policies."""
    reader = _ConfigReader(real_path(path), path.parent, environ)
    try:
        with read_document(config_text(path), str(path), empty=True) as root:
            config = reader.config(root)
    except DocumentError as error:
        problems = (*error.problems, *reader.elsewhere)
        in_order = sorted(problems, key=lambda one: (one.line, one.column) if one.file == str(path) else (math.inf, 0))
        return Reading(str(path), None, tuple(in_order), files=frozenset(reader.files))
    return Reading(str(path), config, tuple(reader.elsewhere), frozenset(reader.broken_apps), frozenset(reader.files))


def app_id_problem(name: str) -> str | None:
    """Return why `name` cannot be the id of an app; None if it can."""
    if not _APP_ID.fullmatch(name):
        return f"the app id {name!r} must be a lower-case letter, then up to 23 of a-z, 0-9 and -"
    return f"the app id {name!r} is reserved ({', '.join(RESERVED)})" if name in RESERVED else None


@dataclass(slots=True)
class _ConfigReader:
    """One pass over the files. `display_path` is the file's folder as the user wrote it.

    `elsewhere` are the problems of others; `broken_apps` are the apps and upstreams whose policies or sources are such
    files.
    """

    path: Path
    display_path: Path
    environ: Mapping[str, str]
    elsewhere: list[Problem] = field(default_factory=list)
    broken_apps: set[str] = field(default_factory=set)
    app_problems: list[Problem] = field(default_factory=list)
    files: set[Path] = field(default_factory=set)
    organisation: Organisation | None = None
    lacks_organisation: bool = False
    """True if its file cannot be used; then no policy is."""

    @property
    def folder(self) -> Path:
        return self.path.parent

    def config(self, root: Section) -> Config:
        self.files = root.report.files
        for node in misplaced_secrets(root.node, SECRETS, [*exempt(root), *environments(root), *secret_nodes(root)]):
            root.report.add(node, f"${{env:…}} and ${{file:…}} are for secrets: only {', '.join(SECRETS)} take them")
        section = root.section("server")
        server = _server(section, self.folder)
        state = server.state_dir or self.folder
        auth = read_auth(root, self.folder, self.environ, server.public_url)
        origins = server.origins
        named_origins = {"public_url": server.public_url, "console": origins.console, "apps": origins.apps}
        check_reach(section, auth, server.host, named_origins)
        plugins = self._plugins(root)
        credentials = read_credentials(root, CredentialReading(self.folder, self.environ, plugins=bool(plugins)))
        if "upstreams" not in root and "apps" not in root:
            root.problem("there is nothing to serve: name web apps under apps, MCP servers under upstreams, or both")
        named = root.named_sections("apps")
        sections = root.named_sections("upstreams")
        self._read_organisation(root.section("policy"))
        has_roles = any(map(_gives_roles, auth))
        apps = [self._app(name, one, credentials, sections, has_roles=has_roles) for name, one in named.items()]
        upstreams = [self._upstream(name, one, credentials, has_roles=has_roles) for name, one in sections.items()]
        for name in sections.keys() & named.keys():
            root.problem(f"{name} is an app, too: each needs a separate name", "upstreams")
        if (listed := root.get("apps")) is not None and listed.value == {}:
            root.problem("name at least one app", "apps")
        _check_sites(section, server.origins, list(named))
        dedicated = [name for name, one in named.items() if one.get("sandbox") and one.text("sandbox") != "opaque"]
        if dedicated and server.origins.dedicated:
            written = section.get("origins") or section.node
            _check_dedicated(Section(written, section.report), server, dedicated[0], list(named))
        own = {server.public_url, origins.console, origins.sandbox, *(origins.app(name) for name in named)}
        hosts = read_hosts(root, self.folder, self.environ, auth, [*named, *sections], own)
        stores = root.section("stores")
        database, journal = record.database(stores, self.folder, state, self.environ), self._journal(stores, state)
        cluster = read_cluster(root, self.folder, state, self.environ)
        if cluster is not None and database.reveal().startswith("sqlite:"):
            root.problem("is for PostgreSQL: name it in stores.database. SQLite is for one process", "cluster")
        telemetry = record.telemetry(root.section("telemetry"), self.folder, self.environ)
        return Config(
            path=self.path,
            server=server,
            auth=auth,
            roles=read_roles(root.section("roles")),
            hosts=hosts,
            apps={app.id: app for app in apps if app is not None},
            upstreams={upstream.name: upstream for upstream in upstreams if upstream is not None},
            credentials=credentials,
            database=database,
            redis=record.redis(stores, self.folder, self.environ),
            journal=journal,
            encryption_key=encryption_key(stores, self.folder, state, self.environ),
            approvals=read_approvals(root.section("approvals"), self.folder, self.environ),
            mcp=read_mcp(root.section("mcp")),
            audit=record.audit(root.section("audit"), telemetry, journal, self.folder, self.environ),
            telemetry=telemetry,
            log=root.choice("log", ("text", "json"), DEFAULTS["log"]),
            access_log=root.flag("access_log", False),
            plugins=plugins,
            files={file: _digest(file) for file in sorted(self.files)},
            cluster=cluster,
        )

    def _plugins(self, root: Section) -> tuple[str, ...]:
        names = root.texts("plugins")
        for node in root.nodes("plugins") if names else ():
            if isinstance(node.value, str) and node.value.endswith(".py") and not (self.folder / node.value).is_file():
                root.report.add(node, f"plugins: there is no file {self.display_path / node.value}")
        return names

    def _app(
        self,
        name: str,
        section: Section,
        credentials: Mapping[str, Spec],
        upstreams: Mapping[str, Section],
        *,
        has_roles: bool,
    ) -> App | None:
        self.app_problems = []
        if problem := app_id_problem(name):
            section.problem(problem)
        section.require("source", "policy")
        policy = self._policy(section, credentials)
        source = self._source(name, section, upstreams, policy)
        unproven = Unproven(section.choice("unproven", list(Unproven), DEFAULTS["apps.<name>.unproven"]))
        title = section.text("title", name[:1].upper() + name[1:])
        trusted = section.flag("trust_view_gestures")
        permissions = _permissions(section)
        storage = StorageKind(section.choice("storage", list(StorageKind), DEFAULTS["apps.<name>.storage"]))
        if isinstance(source, UpstreamApp) and "permissions" in section:
            section.problem("apply to a folder or a file: an upstream declares these for its app", "permissions")
        if isinstance(source, UpstreamApp) and storage is StorageKind.GATEWAY:
            section.problem("is for a folder or a file: the page of an upstream's app is not the gateway's", "storage")
        start = _start(section)
        if isinstance(source, UpstreamApp) and "start" in section:
            section.problem("is for a folder or a file: an upstream's app has no paths", "start")
        if isinstance(source, BackendApp) and source.start is not None:
            if "start" in section:
                section.problem("is written under source already", "start")
            start = source.start
        story = _story(section) if section.get("story") is not None else None
        access = read_access(section, has_roles=has_roles)
        sandbox = SandboxKind(section.choice("sandbox", list(SandboxKind), DEFAULTS["apps.<name>.sandbox"]))
        if isinstance(source, BackendApp) and sandbox is SandboxKind.DEDICATED:
            section.problem("is opaque for pages of a backend, each of which has a frame of its own already", "sandbox")
        domain = _domain(section, source)
        if policy is None:
            self.broken_apps.add(name)
        if policy is None or name in self.broken_apps:
            self._name_app(name)
            return None
        state = stamp(source) if isinstance(source, Path) else ""
        return App(
            id=name,
            source=source,
            policy=policy,
            unproven=unproven,
            title=title,
            trust_view_gestures=trusted,
            stamp=state,
            permissions=permissions,
            storage=storage,
            story=story,
            access=access,
            start=start,
            sandbox=sandbox,
            domain=domain,
        )

    def _upstream(
        self, name: str, section: Section, credentials: Mapping[str, Spec], *, has_roles: bool
    ) -> UpstreamSettings | None:
        if problem := app_id_problem(name):
            section.problem(problem.replace("the app id", "the name"))
        upstream = read_upstream(
            name,
            section,
            folder=self.folder,
            environ=self.environ,
            credentials=credentials,
            policy=lambda: self._policy(section, credentials),
            access=lambda: read_access(section, has_roles=has_roles),
        )
        if self.lacks_organisation or ("policy" in section and upstream.policy is None):
            self.broken_apps.add(name)  # it must not run as if it had no policy
            return None
        if upstream.policy is None and self.organisation is not None:
            return replace(upstream, policy=any_tool(self.organisation))
        return upstream

    def _read_organisation(self, section: Section) -> None:
        """Read the policy that stands above those of all apps and upstreams."""
        name, node = section.text("organisation"), section.get("organisation")
        if not name or node is None:
            self.lacks_organisation = node is not None
            return
        try:
            if not (self.display_path / name).exists():
                raise DocumentError([node.problem(f"organisation: there is no file {self.display_path / name}")])
            self.organisation = load_organisation(self.display_path / name, self.folder)
        except DocumentError as error:
            self.lacks_organisation = True
            self.elsewhere += error.problems

    def _source(
        self, app: str, section: Section, upstreams: Mapping[str, Section], policy: Policy | None
    ) -> Path | UpstreamApp | BackendApp:
        node = section.get("source")
        if node is not None and isinstance(node.value, Mapping):
            other = section.section("source")
            return _backend_app(other, policy) if other.get("backend") else _upstream_app(other, upstreams)
        name = section.text("source")
        if not name:
            return self.folder  # already a problem
        source = self.folder / name
        if not source.exists() and node is not None:
            self._blame([node.problem(f"source: there is no file or folder {source}")])
            self.broken_apps.add(app)
        if source.is_dir() and self.path.resolve().is_relative_to(source.resolve()):
            section.problem(
                f"this folder holds {self.path.name} too, and what lies beside it (keys, database, record): all its "
                "files are given to the app's pages, so put the app in a separate folder",
                "source",
            )
        return source

    def _blame(self, problems: Iterable[Problem]) -> None:
        """Add problems because of which the app that is read is not served; another one may share them."""
        self.app_problems += problems
        self.elsewhere += [problem for problem in self.app_problems if problem not in self.elsewhere]

    def _name_app(self, app: str) -> None:
        """Name the app in its problems."""
        self.elsewhere = [
            replace(one, apps=(*one.apps, app)) if one in self.app_problems else one for one in self.elsewhere
        ]

    def _policy(self, section: Section, credentials: Mapping[str, Spec]) -> Policy | None:
        name, node = section.text("policy"), section.get("policy")
        if name and node is not None and not (self.display_path / name).exists():
            self._blame([node.problem(f"policy: there is no file {self.display_path / name}")])
            return None
        try:
            policy = (
                load_policy(self.display_path / name, root=self.folder, organisation=self.organisation)
                if name
                else None
            )
        except DocumentError as error:
            self._blame(error.problems)
            return None
        if self.lacks_organisation:
            return None
        for backend in policy.backends.values() if policy is not None else ():
            if backend.network.authorities is not None:
                locations.check_authorities(section, Path(backend.network.authorities), "policy")
            if backend.credential is not None and backend.credential not in credentials:
                known = f"known: {', '.join(credentials)}" if credentials else "none is defined"
                near = suggestion(backend.credential, credentials)
                section.problem(
                    f'backend "{backend.name}" of {name} names the credential "{backend.credential}", '
                    f"which is not under credentials{near} ({known})",
                    "policy",
                )
        return policy

    def _journal(self, section: Section, state: Path) -> Path:
        journal = record.journal_path(section, state)
        if journal.parent != state and not journal.parent.is_dir():
            section.problem(f"there is no folder {journal.parent}", "journal")
        return journal


def _digest(file: Path) -> str:
    """Return a digest of the content of a file; empty if it cannot be read, which is a problem already."""
    try:
        return hashlib.sha256(read_bytes(file, MAX_SECRET)).hexdigest()
    except OSError:
        return ""


def _gives_roles(method: Method) -> bool:
    return isinstance(method, OAuthIssuer) or (isinstance(method, ProxyAuth) and method.roles_header is not None)


def _upstream_app(section: Section, upstreams: Mapping[str, Section]) -> UpstreamApp:
    section.require("upstream", "resource")
    if section.get("start") is not None:
        section.problem("is for pages of a backend: an upstream's app has no paths", "start")
    name, resource = section.text("upstream"), section.text("resource")
    if name and name not in upstreams:
        known = f"known: {', '.join(upstreams)}" if upstreams else "none is defined"
        section.problem(f"{name!r} is not under upstreams{suggestion(name, upstreams)} ({known})", "upstream")
    if resource and not _APP_ADDRESS.fullmatch(resource):
        section.problem("write the address of an app in ASCII, such as ui://board/app.html", "resource")
    return UpstreamApp(name, resource, section.text("tool") or None)


def _backend_app(section: Section, policy: Policy | None) -> BackendApp:
    """Return the app whose pages a backend of its policy renders."""
    for key in ("upstream", "resource", "tool"):
        if section.get(key) is not None:
            section.problem("is for the app of an upstream, not for pages of a backend", key)
    name = section.text("backend")
    start = _start(section) if "start" in section else None
    spec = policy.backends.get(name) if policy is not None else None
    if policy is not None and name and spec is None:
        known = f"known: {', '.join(policy.backends)}" if policy.backends else "none is defined"
        near = suggestion(name, policy.backends)
        section.problem(f"{name!r} is no backend of the app's policy{near} ({known})", "backend")
    elif spec is not None and spec.type not in ("http", "asgi"):
        section.problem(f"the backend {name!r} has the type {spec.type}: pages come from http or asgi", "backend")
    return BackendApp(name, start)


def _story(section: Section) -> Json:
    """Return the story of an app, as the console reads it."""
    story = section.section("story")
    story.require("title", "steps")
    story.text("title")
    steps = story.sections("steps")
    node = story.get("steps")
    if node is not None and node.value == ():
        story.problem("must have at least one step", "steps")
    for step in steps:
        step.require("caption")
        for key in ("caption", "tool", "needs", "otherwise"):
            step.text(key)
        step.flag("list")
        arguments = step.get("arguments")
        if arguments is not None and not isinstance(arguments.value, Mapping):
            step.problem(f"must be a mapping, not {arguments.kind}", "arguments")
    return story.node.plain()


def _start(section: Section) -> str:
    """Return the URL at which the app begins, relative to its site."""
    start = section.text("start", DEFAULTS["apps.<name>.start"])
    if not _START.fullmatch(start):
        section.problem(
            f"{start[:80]!r} is no path of the app's site, such as /dashboard/ or /app?tab=1#top, in ASCII",
            "start",
        )
    elif any(part in (".", "..") for part in unquote(urlsplit(start).path).split("/")):
        section.problem(f"{start[:80]!r} has . or .. in its path: write the path that they lead to", "start")
    return start


def _domain(section: Section, source: Path | UpstreamApp | BackendApp) -> str:
    """Return the dedicated origin that other hosts are asked for, which is theirs to define."""
    domain = section.text("domain")
    if domain and isinstance(source, UpstreamApp):
        section.problem("is for a folder or a file: an upstream declares it for its app", "domain")
    elif domain and not _HOST_NAME.fullmatch(domain):
        section.problem(
            f"{domain[:80]!r} is no host name: write it as the documentation of the host gives it, such as "
            "a904794854a047f6.example-content.com",
            "domain",
        )
    return domain


def _permissions(section: Section) -> tuple[str, ...]:
    for name in section.texts("permissions"):
        if name not in PERMISSIONS:
            section.problem(f"{name!r} is none of {', '.join(PERMISSIONS)}", "permissions")
    return section.texts("permissions")


def _server(section: Section, folder: Path) -> ServerSettings:
    host, port = locations.read_listen(section, "listen", DEFAULTS["server.listen"])
    origins = section.section("origins")
    header, trusted = section.choice("client_header", tuple(ClientHeader)), blocks(section, "trusted_proxies")
    if header and not trusted:
        section.problem("no proxy is trusted: name their addresses in `trusted_proxies`", "client_header")
    admin = None
    if section.get("admin_listen") is not None:
        admin = locations.read_listen(section, "admin_listen", DEFAULTS["server.listen"])
    if admin is not None and admin[1] == port:
        section.problem("needs a separate port, other than that of listen", "admin_listen")
    hosts = tuple(name.lower() for name in section.texts("admin_hosts"))
    for name in hosts:
        if not _HOST_NAME.fullmatch(name):
            section.problem(f"{name!r} is not a host name: write it without scheme and port", "admin_hosts")
    if hosts and admin is None:
        section.problem("there is no admin listener: name its address in admin_listen", "admin_hosts")
    drain = section.section("drain")
    return ServerSettings(
        admin=admin,
        admin_hosts=hosts,
        announce=0.0
        if drain.get("announce") and drain.text("announce") == "0s"
        else drain.duration("announce", ANNOUNCE),
        drain=drain.duration("timeout", DRAIN),
        host=host,
        port=port,
        public_url=locations.origin(section, "public_url", _default("server.public_url", port)),
        state_dir=read_state_dir(section, folder),
        trusted_proxies=trusted,
        client_header=ClientHeader(header) if header else None,
        busy_poll=section.flag("busy_poll", False),
        fast_path=section.flag("fast_path", True),
        http_client=HttpClientKind(section.choice("http_client", HttpClientKind, DEFAULTS["server.http_client"])),
        connections=section.integer("connections", int(DEFAULTS["server.connections"]), minimum=1),
        connections_each=section.integer("connections_each", int(DEFAULTS["server.connections_each"]), minimum=1),
        requests_each=section.integer("requests_each", int(DEFAULTS["server.requests_each"]), minimum=1),
        origins=Origins(
            console=locations.origin(origins, "console", _default("server.origins.console", port)),
            apps=locations.app_origin(origins, "apps", _default("server.origins.apps", port)),
            sandbox=locations.origin(origins, "sandbox", _default("server.origins.sandbox", port)),
            dedicated=locations.frame_origin(origins, "dedicated", _default("server.origins.dedicated", port)),
        ),
    )


def _default(key: str, port: int) -> str:
    return DEFAULTS[key].replace("PORT", str(port))


def _check_sites(section: Section, origins: Origins, apps: Sequence[str]) -> None:
    """Check that sites differ in their hosts, since cookies ignore ports."""
    sites = {"console": origins.console, "sandbox": origins.sandbox}
    sites |= {f"the app {name}": origins.app(name) for name in apps}
    for (one, first), (other, second) in combinations(sites.items(), 2):
        host = locations.host_of(first)
        if host and host == locations.host_of(second):
            section.problem(f"{one} and {other} need hosts of their own, and both are at {host}", "origins")


def _check_dedicated(section: Section, server: ServerSettings, app: str, apps: Sequence[str]) -> None:
    """Check that frames of `app` share no site with others: cookies and storage do not tell hosts of a site apart."""
    origins = server.origins
    if "dedicated" not in section and not locations.is_loopback(locations.host_of(origins.console)):
        section.problem(
            f"the app {app} has sandbox: dedicated, which needs a domain of its own: write server.origins.dedicated, "
            "such as https://{id}.views.example.org, or leave the app's sandbox opaque",
            "dedicated",
        )
        return
    site = locations.site_of(locations.host_of(origins.frame("id")))
    others = {"console": origins.console, "sandbox": origins.sandbox, "public_url": server.public_url}
    others |= {f"apps ({name})": origins.app(name) for name in apps}
    for name, other in others.items():
        if other and locations.site_of(locations.host_of(other)) == site:
            section.problem(
                f"{origins.dedicated} shares the site {site} with {name}, {other}, so that an app could set cookies "
                "there: take a domain that is not used otherwise",
                "dedicated",
            )
    if origins.console.startswith("https:") and not origins.dedicated.startswith("https:"):
        section.problem("must be https, as the console is: browsers show no http frame in it", "dedicated")
