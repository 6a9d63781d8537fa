"""Reads `auth`, `roles` and `server.trusted_proxies`: authentication and permissions of callers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path

from gateway.callers.issuer_tokens import public_keys
from gateway.callers.methods import Blocks, HostSite, Method, NoAuth, OAuthIssuer, ProxyAuth, Roles, TokenAuth
from gateway.config import locations
from gateway.config.locations import network
from gateway.config.secrets import MAX_SECRET, secret
from gateway.config.settings import DEFAULTS, SETTINGS
from gateway.credentials import ALGORITHMS
from gateway.documents import Node, Section, parse_duration, suggestion
from gateway.documents.nodes import quote
from gateway.documents.reader import read_bytes
from gateway.jsontext.reading import parse_json
from gateway.model import Secret

TYPES = ("none", "token", "oauth", "proxy")

LONGEST_SKEW = 300.0

_HEADER = re.compile(r"[a-z0-9][a-z0-9-]{0,63}", re.ASCII)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}", re.ASCII)
_TAKEN = frozenset(
    {"authorization", "connection", "content-length", "content-type", "cookie", "forwarded", "host", "origin"}
)


def read_auth(root: Section, folder: Path, environ: Mapping[str, str], public_url: str) -> tuple[Method, ...]:
    """Read the methods in order; only `none` if the file has no `auth`."""
    if "auth" not in root:
        root.get("auth")
        return (NoAuth(),)
    auth = [_method(root, node, folder, environ, public_url) for node in root.nodes("auth", texts=True)]
    methods = tuple(method for method in auth if method is not None)
    if not methods and not root.report.problems:
        root.problem("name at least one of none, token, oauth, proxy", "auth")
    for message in _twice(methods):
        root.problem(message, "auth")
    return methods or (NoAuth(),)


SHORTEST_SECRET = 16
"""Characters of the shortest secret of a host's back end, which can be guessed at the gateway."""

_CLIENT_ID = re.compile(r"[!-~]{1,256}", re.ASCII)


def read_hosts(
    root: Section,
    folder: Path,
    environ: Mapping[str, str],
    methods: Sequence[Method],
    names: Collection[str],
    own: Collection[str],
) -> tuple[HostSite, ...]:
    """Read the web sites of others; `names` are the apps and upstreams, `own` the gateway's own origins."""
    sites: list[HostSite] = []
    for node in root.nodes("hosts", texts=True):
        if isinstance(node.value, Mapping):
            sites.append(_host(root.report.section(node), folder, environ, methods, names, own))
        else:
            root.report.add(node, "hosts: write {origin: https://chat.example.com, apps: [cart]}")
    for what, values in (("origin", [one.origin for one in sites]), ("client_id", [one.client_id for one in sites])):
        for value in dict.fromkeys(value for value in values if value and values.count(value) > 1):
            root.problem(f"{what} {value} occurs here twice", "hosts")
    return tuple(sites)


def _host(
    section: Section,
    folder: Path,
    environ: Mapping[str, str],
    methods: Sequence[Method],
    names: Collection[str],
    own: Collection[str],
) -> HostSite:
    section.require("origin", "apps")
    origin = locations.origin(section, "origin")
    if origin in own:
        section.problem(f"{origin} is the gateway's own, whose pages need no entry", "origin")
    if origin.startswith("http://") and not locations.is_loopback(locations.host_of(origin)):
        section.problem(f"{origin}: write https: tokens of people go to its pages", "origin")
    apps = section.texts("apps", empty="name the apps and upstreams that its pages may show")
    for app in apps:
        if app not in names:
            section.problem(f"{app!r} is neither an app nor an upstream{suggestion(app, names)}", "apps")
    issuers = [method.issuer for method in methods if isinstance(method, OAuthIssuer)]
    issuer, client = section.text("issuer") or None, section.text("client_id") or None
    client_secret, jwks = _secret(section, folder, environ), _jwks(section, folder)
    if all(isinstance(method, NoAuth) for method in methods):
        for key in ("issuer", "client_id", "client_secret", "jwks"):
            if key in section:
                section.problem("is for people who log in: name an oauth issuer under `auth`", key)
    elif not issuers:
        section.problem("its people are those of an oauth issuer, and there is none under `auth`")
    elif issuer is None or client is None or (client_secret is None) == (jwks == ""):
        section.problem(
            "name the `issuer` of its people, and the `client_id` and `client_secret` (or `jwks`) of its back end, "
            "which exchanges their tokens"
        )
    elif issuer not in issuers:
        section.problem(f"{issuer!r} is no oauth issuer of `auth`{suggestion(issuer, issuers)}", "issuer")
    if client is not None and not _CLIENT_ID.fullmatch(client):
        section.problem("1 to 256 printable ASCII characters without spaces", "client_id")
    if client_secret is not None and len(client_secret.reveal()) < SHORTEST_SECRET:
        section.problem(f"at least {SHORTEST_SECRET} characters: it could be guessed", "client_secret")
    name = section.text("name", locations.host_of(origin) if origin else "")
    return HostSite(origin, name, apps, section.flag("attest"), issuer, client, client_secret, jwks)


def _jwks(section: Section, folder: Path) -> str:
    """Return the text of a file of public keys (RFC 7517 5); empty without one."""
    name = section.text("jwks")
    if not name:
        return ""
    file = folder / name
    section.report.files.add(file)
    try:
        text = read_bytes(file, MAX_SECRET).decode()
        keys = parse_json(text)
        if not isinstance(keys, dict) or not public_keys(keys):
            raise ValueError("holds no public key that can verify a signature")
    except OSError as error:
        section.problem(f"{file} cannot be read: {error.strerror}", "jwks")
        return "{}"
    except ValueError as error:
        section.problem(f"{file} {error}: it must be a JWK set of public keys", "jwks")
        return "{}"
    return text


def read_roles(section: Section) -> Roles:
    """Read which values of the roles claim give which role."""
    return Roles(
        user=frozenset(section.texts("user")) if section.get("user") is not None else None,
        approver=frozenset(section.texts("approver")),
        auditor=frozenset(section.texts("auditor")),
        admin=frozenset(section.texts("admin")),
    )


def blocks(section: Section, key: str) -> Blocks:
    """Read a list of addresses and CIDR blocks."""
    sites = []
    for text in section.texts(key):
        try:
            block = ip_network(text)
            if not block.prefixlen:
                section.problem(f"{text} is every address: any client would be trusted", key)
            sites.append(block)
        except ValueError:
            section.problem(f"{text!r} is not an address or CIDR block such as 10.0.0.7 or 10.0.0.0/8", key)
    return tuple(sites)


def check_reach(section: Section, methods: Sequence[Method], host: str, origins: Mapping[str, str]) -> None:
    """Check that a gateway reachable from other machines requires authentication, and https for logins."""
    if any(isinstance(method, NoAuth) for method in methods) and not locations.is_loopback(host):
        section.problem(
            f"other machines can reach {host}, and `auth` lets everybody in (none): listen on 127.0.0.1, or name "
            "token, oauth or proxy alone under auth",
            "listen",
        )
    if all(isinstance(method, NoAuth) for method in methods):
        return
    for name, origin in origins.items():
        here = locations.is_loopback(locations.host_of(origin.replace("{app}", "app")))
        if origin.startswith("http://") and not here:
            section.problem(f"{name}: write https: logins go over this connection, and http is for this machine alone")
        if locations.host_of(origin) == "localhost" and name != "public_url":
            section.problem(f"{name}: a bare localhost shares its cookies: write a host such as gateway.localhost")


def _method(root: Section, node: Node, folder: Path, environ: Mapping[str, str], public_url: str) -> Method | None:
    if isinstance(node.value, str):
        methods_by_name: dict[str, Method] = {"none": NoAuth(), "token": TokenAuth()}
        plain = methods_by_name.get(node.value)
        if plain is None:
            root.report.add(node, f"auth: {_no_method(node.value)}")
        return plain
    if not isinstance(node.value, Mapping):
        root.report.add(node, f"auth: must be one of {', '.join(TYPES)}, not {node.kind}")
        return None
    section = root.report.section(node)
    section.require("type")
    match section.choice("type", TYPES):
        case "none":
            return NoAuth()
        case "token":
            return TokenAuth(frozenset(section.texts("view_clients")))
        case "proxy":
            return _proxy(section)
        case "oauth":
            return _oauth(section, folder, environ, public_url)
        case _:
            for setting in SETTINGS:  # unknown type: any type's keys may be meant
                if setting.key.startswith("auth[]."):
                    section.get(setting.key.removeprefix("auth[]."))
            return None


def _no_method(name: str) -> str:
    if name in TYPES:
        return f"{quote(name)} needs more keys: write it as a mapping with `type: {name}`"
    return f"must be one of {', '.join(TYPES)}, not the text {quote(name)}{suggestion(name, TYPES)}"


def _proxy(section: Section) -> ProxyAuth:
    section.require("name", "header", "proxies")
    name = section.text("name", "proxy")
    if not _NAME.fullmatch(name):
        section.problem("must be of a-z, 0-9 and -", "name")
    networks = blocks(section, "proxies")
    if "proxies" in section and not networks:
        section.problem("list the addresses of the proxy: the header is trusted from them only", "proxies")
    header, roles = _header(section, "header") or "", _header(section, "roles_header")
    return ProxyAuth(name, header, roles, networks)


def _header(section: Section, key: str) -> str | None:
    name = section.text(key).lower()
    if name and (not _HEADER.fullmatch(name) or name in _TAKEN):
        section.problem(f"{name!r} is not a header that identifies the caller, such as x-auth-request-user", key)
    return name or None


def _oauth(section: Section, folder: Path, environ: Mapping[str, str], public_url: str) -> OAuthIssuer:
    section.require("issuer")
    audience = section.get("audience")
    listed = audience is not None and isinstance(audience.value, tuple)
    audiences = section.texts("audience") if listed else (section.text("audience", public_url),)
    algorithms = section.texts("algorithms", ALGORITHMS)
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            near = suggestion(algorithm, ALGORITHMS)
            section.problem(f"must be one of {', '.join(ALGORITHMS)}, not {quote(algorithm)}{near}", "algorithms")
    introspection = section.flag("introspection")
    if introspection and not ("client_id" in section and "client_secret" in section):
        section.problem("introspection takes client_id and client_secret, as which the gateway asks", "introspection")
    if "client_secret" in section and "client_id" not in section:
        section.problem("client_secret takes a client_id", "client_secret")
    skew = section.duration("skew", parse_duration(DEFAULTS["auth[].skew"]))
    if skew > LONGEST_SKEW:
        section.problem("at most 5m: a longer one would accept expired tokens", "skew")
    session = section.duration("session", parse_duration(DEFAULTS["auth[].session"]))
    if not 60 <= session <= 30 * 86400:
        section.problem("from 1m to 30d", "session")
    return OAuthIssuer(
        issuer=locations.url(section, "issuer"),
        audience=audiences,
        algorithms=algorithms,
        scope=section.texts("scope"),
        roles_claim=section.text("roles_claim", DEFAULTS["auth[].roles_claim"]),
        client_id=section.text("client_id") or None,
        client_secret=_secret(section, folder, environ),
        login_scope=section.texts("login_scope", ("openid",)),
        introspection=introspection,
        skew=skew,
        session=session,
        logout_there=section.choice("logout", ("issuer", "gateway")) != "gateway",
        view_clients=frozenset(section.texts("view_clients")),
        network=network(section, DEFAULTS["auth[].network"], folder),
    )


def _secret(section: Section, folder: Path, environ: Mapping[str, str]) -> Secret | None:
    if section.get("client_secret") is None:
        return None
    return secret(section, "client_secret", folder, environ)


def _twice(methods: Sequence[Method]) -> Iterator[str]:
    issuers = [method.issuer for method in methods if isinstance(method, OAuthIssuer)]
    names = [method.name for method in methods if isinstance(method, ProxyAuth)]
    for name in dict.fromkeys(name for name in (*issuers, *names) if (issuers + names).count(name) > 1):
        yield f"{name} occurs here twice"
