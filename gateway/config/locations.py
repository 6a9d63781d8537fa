"""Locations in gateway.yaml: listen addresses, origins and URLs; the folders of the configuration and the state."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from gateway.config.secrets import config_text
from gateway.documents import Report, Section, load
from gateway.documents.reader import read_bytes
from gateway.errors import DocumentError
from gateway.policy import Network, parse_network
from gateway.policy.destinations import canonical_origin, canonical_url, parse_origin


def network(section: Section, default: str, folder: Path | None = None) -> Network:
    """Read `public`, `private`, or a list of these and CIDRs, under the key `network`.

    With a `folder`, read the file of trusted certificate authorities under `authorities`, too, relative to it.
    """
    own_network = _network(section, default)
    text = section.text("authorities") if folder is not None else ""
    if folder is None or not text:
        return own_network
    check_authorities(section, folder / text)
    return replace(own_network, authorities=str(folder / text))


def check_authorities(section: Section, file: Path, key: str = "authorities") -> None:
    """Report a file that has no certificate authorities."""
    from cryptography.x509 import load_pem_x509_certificates  # noqa: PLC0415  only where `authorities` is set

    section.report.files.add(file)
    try:
        load_pem_x509_certificates(read_bytes(file))
    except FileNotFoundError:
        section.problem(f"there is no file {file}", key)
    except OSError as error:
        section.problem(f"{file} cannot be read: {error.strerror}", key)
    except ValueError:
        section.problem(f"{file} has no certificates in PEM", key)


def _network(section: Section, default: str) -> Network:
    node = section.get("network")
    listed = node is not None and isinstance(node.value, tuple)
    words = section.texts("network") if listed else (section.text("network", default),)
    try:
        return parse_network(words)
    except ValueError as error:
        section.problem(str(error), "network")
        return Network()


_LISTEN = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):([0-9]{1,5})", re.ASCII)
_APP = "{app}"
_ID = "{id}"


def read_listen(section: Section, key: str, default: str, written: str | None = None) -> tuple[str, int]:
    """Read host and port of `127.0.0.1:8080` or `[::1]:8080`; the host without brackets.

    `written` is the text of the setting if something in it was replaced.
    """
    node = section.get(key)
    for text in (default if node is None else written or node.value, default):
        match = _LISTEN.fullmatch(text) if isinstance(text, str) else None
        if match is not None and 0 < int(match[2]) < 65536:
            return match[1].strip("[]").lower(), int(match[2])
        section.problem("write an address and a port from 1 to 65535, such as 127.0.0.1:8080 or [::1]:8080", key)
    raise ValueError(default)


def origin(section: Section, key: str, default: str = "") -> str:
    """Read a canonical origin, by default `default`, which may be empty."""
    text = section.text(key, default)
    try:
        return _browser_origin(text) if text else ""
    except ValueError as error:
        section.problem(str(error), key)
        return ""


def _browser_origin(text: str) -> str:
    """Return an origin as browsers send it: without zeros before its port, and with the shortest IPv6 address.

    Raises `ValueError` if it is not an origin.
    """
    scheme, _, authority = parse_origin(text).partition("://")
    host, colon, port = (authority, "", "") if authority.endswith("]") else authority.partition(":")
    if authority.startswith("["):
        address, _, rest = authority[1:].partition("]")
        host, colon, port = f"[{ipaddress.IPv6Address(address)}]", rest[:1], rest[1:]
    return canonical_origin(scheme, f"{host}{colon}{int(port)}" if colon else host)


def app_origin(section: Section, key: str, default: str) -> str:
    """Read the origin pattern of apps: `{app}` is in the first label of its host."""
    text = section.text(key, default)
    scheme, separator, authority = text.partition("://")
    first, dot, rest = authority.partition(".")
    if not dot or first.count(_APP) != 1:
        section.problem(f"each app needs a separate site: write {_APP} in the host, as in http://{_APP}.localhost", key)
        return ""
    try:
        parse_origin(f"{scheme}{separator}{first.replace(_APP, 'app')}.{rest}")
        plain = _browser_origin(f"{scheme}{separator}{rest}")
    except ValueError as error:
        section.problem(str(error), key)
        return ""
    scheme, separator, rest = plain.partition("://")
    return f"{scheme}{separator}{first}.{rest}"


def frame_origin(section: Section, key: str, default: str) -> str:
    """Read the pattern of dedicated origins: `{id}` is the first label of its host."""
    text = section.text(key, default)
    scheme, separator, authority = text.partition("://")
    first, dot, rest = authority.partition(".")
    try:
        if first != _ID or not dot:
            raise ValueError(f"each app and person needs a separate host: write {_ID} as its first label")
        parse_origin(f"{scheme}{separator}id.{rest}")
        plain = _browser_origin(f"{scheme}{separator}{rest}")
    except ValueError as error:
        section.problem(f"{error}; an example is https://{_ID}.views.example.org", key)
        return ""
    return plain.replace("://", f"://{_ID}.", 1)


def site_of(host: str) -> str:
    """Return the site of a host: its registrable domain (Public Suffix List), or itself if it has none."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _registrable_domain()(host) or host
    return host


@cache
def _registrable_domain() -> Callable[[str], str | None]:
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415  reads its list, only where a frame has its own origin

    return PublicSuffixList().privatesuffix


def is_public_suffix(host: str) -> bool:
    """Return whether each name below `host` is a site of its own."""
    return site_of(f"id.{host}") == f"id.{host}"


def url(section: Section, key: str) -> str:
    """Read an absolute URL unchanged, without query and fragment; `https`, or `http` on loopback."""
    text = section.text(key)
    try:
        form = urlsplit(canonical_url(text)) if text else None
    except ValueError as error:
        section.problem(str(error), key)
        return ""
    if form is not None and form.scheme == "http" and not is_loopback(form.hostname or ""):
        section.problem("write https: secrets go over this connection, and http is for this machine alone", key)
    return text


def host_of(text: str) -> str:
    """Return the host of an origin, without its port."""
    return urlsplit(text).hostname or ""


def is_loopback(host: str) -> bool:
    """Return whether `host` is loopback, by its form only: nothing is resolved."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


KUBERNETES_DATA = "..data"
"""The symbolic link in a volume of a ConfigMap or Secret, which the kubelet swaps at each change (AtomicWriter)."""


def real_path(path: Path) -> Path:
    """Return the absolute path of gateway.yaml behind all symbolic links.

    In a Kubernetes volume that is the file's place in the volume: the folder behind the links is replaced at each
    change.
    """
    if (path.parent / KUBERNETES_DATA).is_symlink():
        return Path(os.path.realpath(path.parent)) / path.name
    return Path(os.path.realpath(path))


def read_state_dir(server: Section, folder: Path) -> Path | None:
    """Read `server.state_dir`, relative to `folder`; None if it is not set."""
    if server.get("state_dir") is None:
        return None
    state = Path(os.path.abspath(folder / server.text("state_dir")))
    if state.exists() and not state.is_dir():
        server.problem(f"{state} is not a folder", "state_dir")
    elif not state.parent.is_dir():
        server.problem(f"there is no folder {state.parent}", "state_dir")
    return state


def state_folder(path: Path) -> Path:
    """Return the state folder of the configuration in `path`; its own folder if it cannot be read."""
    folder = real_path(path).parent
    try:
        root = Report([]).section(load(config_text(path), str(path)))
        return read_state_dir(root.section("server"), folder) or folder
    except DocumentError:
        return folder
