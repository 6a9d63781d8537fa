"""Reads `upstreams` of gateway.yaml: MCP servers behind the gateway, and their offered tools."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from gateway.callers.entitlements import AccessRule
from gateway.config import locations
from gateway.config.locations import network
from gateway.config.secrets import secret
from gateway.credentials import OAuth, PluginSpec, Spec
from gateway.documents import Node, Section, parse_duration
from gateway.documents.nodes import parse_size
from gateway.model import Secret
from gateway.policy import Network, Policy

TIMEOUT = "60s"
START = "30s"
START_PROCESS = "2m"
"""A command may first have to be downloaded."""

MESSAGE = "16MiB"

_PLACE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
ALLOWED: Mapping[str, str] = {
    "blob-workers": "workers from `blob:` URLs",
    "eval": "JavaScript from strings",
    "wasm": "WebAssembly",
}
"""Permissions for an upstream's apps beyond the content security policy of MCP Apps."""

_USER = "leave out the user and the password, and name a credential"
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,23}", re.ASCII)


class UpstreamKind(StrEnum):
    """The transport of an upstream, by its key in the file."""

    COMMAND = "command"
    URL = "url"
    SSE = "sse"
    WEBSOCKET = "websocket"
    INSIDE = "server"


class Replicas(StrEnum):
    """The number of processes of a command if the gateway has several nodes."""

    ONE = "one"
    EACH = "each"


REMOTE = frozenset({UpstreamKind.URL, UpstreamKind.SSE, UpstreamKind.WEBSOCKET})
"""The transports with a URL."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """One MCP server. `target` is its URL, or the `module:object` of one in this process.

    `personal` means that the credential differs per principal. `prefix` is the prefix of its names on `/mcp`, or None.
    `include` and `exclude` are patterns of tool names. `policy` None: all included tools may be called. `trust` names
    the group of upstreams whose apps may share `/mcp`. `allow` are the permissions of `ALLOWED` for its apps. `start`
    is in seconds to the end of the handshake, `timeout` in seconds of silence, `message` in bytes of one message.
    `calls` is the limit in flight on one connection, `connections` that of connections. `access` None: every caller
    may use it. `replicas` is `ONE` for a command that all nodes share.
    """

    name: str
    kind: UpstreamKind
    target: str = ""
    command: tuple[str, ...] = ()
    cwd: Path | None = None
    env: Mapping[str, Secret] = field(default_factory=dict)
    credential: str | None = None
    personal: bool = False
    network: Network = field(default_factory=Network)
    prefix: str | None = None
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    policy: Policy | None = None
    trust: str | None = None
    runtime: bool = False
    allow: tuple[str, ...] = ()
    lazy: bool = True
    start: float = 30.0
    timeout: float = 60.0
    message: int = 16 * 2**20
    calls: int = 256
    connections: int = 16
    access: AccessRule | None = None
    replicas: Replicas = Replicas.EACH

    def includes(self, tool: str) -> bool:
        """Return whether `include` and `exclude` admit the tool `tool`."""
        listed = any(fnmatchcase(tool, pattern) for pattern in self.include)
        return listed and not any(fnmatchcase(tool, pattern) for pattern in self.exclude)


def read_upstream(
    name: str,
    section: Section,
    *,
    folder: Path,
    environ: Mapping[str, str],
    credentials: Mapping[str, Spec],
    policy: Callable[[], Policy | None],
    access: Callable[[], AccessRule | None],
) -> UpstreamSettings:
    """Read the upstream `name`; `policy` loads its policy file, `access` reads who may use it."""
    for key in (*UpstreamKind, "cwd", "env", "policy", "include", "replicas"):
        section.get(key)  # known keys whatever other errors there are
    kinds = [kind for kind in UpstreamKind if kind in section]
    if len(kinds) != 1:
        keys = ", ".join(UpstreamKind)
        section.problem(f"say how it is reached, by one of {keys}" + (", not by several" if kinds else ""))
    kind = kinds[0] if kinds else UpstreamKind.URL
    credential = _credential(section, kind, credentials)
    lists = "include" in section
    return UpstreamSettings(
        name=name,
        kind=kind,
        target=_target(section, kind),
        command=_command(section, folder) if kind is UpstreamKind.COMMAND else (),
        cwd=_cwd(section, kind, folder),
        env=_env(section, kind, folder, environ),
        credential=credential,
        personal=credential is not None and _personal(credentials.get(credential)),
        network=_network(section, kind, folder),
        prefix=_prefix(section, name),
        include=section.texts("include") if lists else ("*",),
        exclude=section.texts("exclude"),
        policy=policy() if "policy" in section else None,
        trust=section.text("trust") or None,
        runtime=section.flag("runtime"),
        allow=_allow(section),
        lazy=section.flag("lazy", True),
        start=section.duration("start", parse_duration(START_PROCESS if kind is UpstreamKind.COMMAND else START)),
        timeout=section.duration("timeout", parse_duration(TIMEOUT)),
        message=section.size("message", parse_size(MESSAGE)),
        calls=section.integer("calls", 256, minimum=1),
        connections=section.integer("connections", 16, minimum=1),
        access=access(),
        replicas=_replicas(section, kind),
    )


def environments(root: Section) -> list[Node]:
    """Return the variables of commands, in which any name may have a secret."""
    node = root.node.value.get("upstreams") if isinstance(root.node.value, Mapping) else None
    sections = node.value.values() if node is not None and isinstance(node.value, Mapping) else ()
    values = (section.value.get("env") for section in sections if isinstance(section.value, Mapping))
    return [env for env in values if env is not None]


def _target(section: Section, kind: UpstreamKind) -> str:
    match kind:
        case UpstreamKind.URL | UpstreamKind.SSE:
            return _url(section, kind)
        case UpstreamKind.WEBSOCKET:
            text = section.text(kind)
            parts = _parts(section, kind, text)
            if parts is None:
                return ""
            if parts.username is not None:
                section.problem(_USER, kind)
            elif parts.scheme not in ("ws", "wss") or not parts.hostname:
                section.problem("write a WebSocket's URL, such as wss://mcp.example.com/mcp", kind)
            elif parts.scheme == "ws" and not locations.is_loopback(parts.hostname):
                section.problem("write wss: ws is for this machine alone", kind)
            return text
        case UpstreamKind.INSIDE:
            return _place(section)
        case UpstreamKind.COMMAND:
            return ""


def _url(section: Section, key: str) -> str:
    text = section.text(key)
    plain, separator, query = text.partition("?")
    if not text:
        return ""
    if not separator:
        return locations.url(section, key)
    parts = _parts(section, key, plain)
    if parts is None:
        return ""
    if parts.username is not None:
        section.problem(_USER, key)
    elif parts.scheme not in ("http", "https") or not parts.hostname or "#" in query:
        section.problem("write an absolute URL, https, or http on this machine", key)
    elif parts.scheme == "http" and not locations.is_loopback(parts.hostname):
        section.problem("write https: http is for this machine alone", key)
    return text


def _parts(section: Section, key: str, text: str) -> SplitResult | None:
    """Split a URL; report an invalid host or port."""
    try:
        parts = urlsplit(text)
        if parts.port != 0:
            return parts
    except ValueError:  # names the text, which may contain a password
        pass
    section.problem("its host or port is not valid", key)
    return None


def _place(section: Section) -> str:
    text = section.text(UpstreamKind.INSIDE)
    module = text.partition(":")[0]
    if not _PLACE.fullmatch(text):
        section.problem(
            'write "module:object", an object of the MCP SDK, or a function that makes one', UpstreamKind.INSIDE
        )
        return text
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        section.problem(
            f"there is no module {module}: install it beside the gateway, or set PYTHONPATH", UpstreamKind.INSIDE
        )
    return text


def _command(section: Section, folder: Path) -> tuple[str, ...]:
    form = "name a program and its arguments, as in [npx, -y, some-mcp-server]"
    if (node := section.get(UpstreamKind.COMMAND)) is not None and isinstance(node.value, str):
        section.problem(form, UpstreamKind.COMMAND)
        return ()
    command = section.texts(UpstreamKind.COMMAND, empty=form)
    if not command:
        return ()
    if shutil.which(command[0]) is None and shutil.which(str(folder / command[0])) is None:
        section.problem(f"there is no program {command[0]!r}: install it, or write its path", UpstreamKind.COMMAND)
    elif "/" in command[0] and (folder / command[0]).is_file():
        command = (str(folder / command[0]), *command[1:])  # not resolved: a virtual environment is a symlink
    return command


def _cwd(section: Section, kind: UpstreamKind, folder: Path) -> Path | None:
    if "cwd" in section and kind is not UpstreamKind.COMMAND:
        section.problem("is for a command alone", "cwd")
    place = folder / section.text("cwd", ".")
    if not place.is_dir():
        section.problem(f"there is no folder {place}", "cwd")
    return place if kind is UpstreamKind.COMMAND else None


def _replicas(section: Section, kind: UpstreamKind) -> Replicas:
    if "replicas" not in section:
        return Replicas.ONE if kind is UpstreamKind.COMMAND else Replicas.EACH
    if kind is not UpstreamKind.COMMAND:
        section.problem("is for a command alone: each node connects to any other upstream by itself", "replicas")
    text = section.text("replicas")
    if text not in set(Replicas):
        if text:  # else another mistake is reported
            section.problem(f"write {Replicas.ONE}, one process for all nodes, or {Replicas.EACH}", "replicas")
        return Replicas.ONE
    return Replicas(text)


def _env(section: Section, kind: UpstreamKind, folder: Path, environ: Mapping[str, str]) -> Mapping[str, Secret]:
    if "env" in section and kind is not UpstreamKind.COMMAND:
        section.problem("is for a command alone", "env")
    values = section.section("env")
    return {name: secret(values, name, folder, environ) for name in values}


def _personal(credential: Spec | None) -> bool:
    """Return whether it may be a different account for each caller."""
    return isinstance(credential, PluginSpec) or (isinstance(credential, OAuth) and credential.per_person)


def _credential(section: Section, kind: UpstreamKind, credentials: Mapping[str, Spec]) -> str | None:
    name = section.text("credential") or None
    if name is None:
        return None
    if kind in (UpstreamKind.COMMAND, UpstreamKind.INSIDE):
        section.problem("is for an upstream at a URL; a command takes secrets by env", "credential")
    elif name not in credentials:
        known = f"known: {', '.join(credentials)}" if credentials else "none is defined"
        section.problem(f'the credential "{name}" is not under credentials ({known})', "credential")
    return name


def _network(section: Section, kind: UpstreamKind, folder: Path) -> Network:
    for key in ("network", "authorities") if kind in (UpstreamKind.COMMAND, UpstreamKind.INSIDE) else ():
        if section.get(key) is not None:
            section.problem("is for an upstream at a URL", key)
    return network(section, "public", folder)


def _allow(section: Section) -> tuple[str, ...]:
    names = section.texts("allow")
    for word in names:
        if word not in ALLOWED:
            section.problem(f"{word!r} is none of {', '.join(ALLOWED)}", "allow")
    return names


def _prefix(section: Section, name: str) -> str | None:
    node = section.get("prefix")
    if node is None:
        return name
    if node.value is None:
        return None
    prefix = section.text("prefix")
    if prefix and not _PREFIX.fullmatch(prefix):
        section.problem("must be a letter, then up to 23 letters, digits, - and _; or null for none", "prefix")
    return prefix
