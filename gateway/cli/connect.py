"""`connect`: prints, or writes, the configuration with which a host reaches this gateway."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import click
import yaml

from gateway.callers.methods import NoAuth, OAuthIssuer, TokenAuth
from gateway.cli.group import Unusable, config_option, opener
from gateway.cli.stdio.command import TOKEN, is_address
from gateway.config import app_id_problem, load_config
from gateway.config.secrets import LenientEnvironment
from gateway.documents.nodes import MAX_SIZE, load
from gateway.errors import DocumentError
from gateway.jsontext.editing import set_member
from gateway.jsontext.writing import indented_json
from gateway.model import Json

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)

PLACEHOLDER: Final = "TOKEN"
"""Stands for a token in what is printed."""


@dataclass(frozen=True, slots=True)
class HostTarget:
    """The gateway as a host reaches it: the `url` of its MCP server, or the `command` of the pipe to it.

    `auth` is `none`, `token` or `oauth`; `token` is the token of the environment, if there is one.
    """

    name: str
    url: str
    command: tuple[str, ...]
    auth: str
    token: str | None = None


Members: TypeAlias = Mapping[tuple[str, ...], Json]
"""The members that a host's file needs, by their paths."""


@dataclass(frozen=True, slots=True)
class HostFile:
    """A host's configuration. `place` returns its file by platform, home folder and environment; None: it has none.

    `members` returns what the file needs, `steps` what the person does (before `--write`: instead of the file).
    `is_yaml` is the format of the file, which otherwise is JSON with comments. `stdio` hosts start a process.
    """

    title: str
    place: Callable[[str, Path, Mapping[str, str]], Path] | None
    members: Callable[[HostTarget], Members]
    steps: Callable[[HostTarget], tuple[str, ...]] = lambda _: ()
    is_yaml: bool = False
    stdio: bool = False


def _settings_folder(platform: str, home: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder in which applications of a person keep their settings."""
    if platform == "darwin":
        return home / "Library" / "Application Support"
    if platform == "win32":
        return Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")


def _goose_file(platform: str, home: Path, environ: Mapping[str, str]) -> Path:
    if platform == "win32":
        return _settings_folder(platform, home, environ) / "Block" / "goose" / "config" / "config.yaml"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "goose" / "config.yaml"


def _bearer(target: HostTarget, reference: str) -> dict[str, Json]:
    return {"headers": {"Authorization": f"Bearer {reference}"}} if target.auth == "token" else {}


def _claude_desktop(target: HostTarget) -> Members:
    entry: dict[str, Json] = {"command": target.command[0], "args": list[Json](target.command[1:])}
    if target.auth == "token":
        entry["env"] = {TOKEN: target.token or PLACEHOLDER}
    return {("mcpServers", target.name): entry}


def _claude_code(target: HostTarget) -> Members:
    entry: Json = {"type": "http", "url": target.url, **_bearer(target, f"${{{TOKEN}}}")}
    return {("mcpServers", target.name): entry}


def _vscode(target: HostTarget) -> Members:
    entry: Json = {"type": "http", "url": target.url, **_bearer(target, f"${{env:{TOKEN}}}")}
    return {("servers", target.name): entry}


def _cursor(target: HostTarget) -> Members:
    return {("mcpServers", target.name): {"url": target.url, **_bearer(target, f"${{env:{TOKEN}}}")}}


def _goose(target: HostTarget) -> Members:
    entry: dict[str, Json] = {
        "enabled": True,
        "type": "streamable_http",
        "name": target.name,
        "description": "Web apps behind webmcp-gateway",
        "uri": target.url,
        "timeout": 300,
    }
    if target.auth == "token":
        entry |= {"env_keys": [TOKEN], **_bearer(target, f"${{{TOKEN}}}")}
    return {("extensions", target.name): entry}


def _inspector(target: HostTarget) -> Members:
    entry: Json = {"type": "streamable-http", "url": target.url, **_bearer(target, target.token or PLACEHOLDER)}
    return {("mcpServers", target.name): entry}


def _chatgpt_steps(target: HostTarget) -> tuple[str, ...]:
    steps = [
        "In ChatGPT, switch on Settings > Apps > Advanced settings > Developer mode.",
        "Choose Settings > Apps > Create app.",
        f"Name: {target.name}. MCP server URL: {target.url}",
        f"Authentication: {'OAuth' if target.auth == 'oauth' else 'No authentication'}.",
    ]
    parts = urlsplit(target.url)
    if parts.scheme != "https" or not _is_public(parts.hostname or ""):
        steps.append("ChatGPT reaches public https addresses alone: set server.public_url, and serve it there.")
    if target.auth == "token":
        steps.append("ChatGPT sends no token of the gateway: name an oauth issuer under `auth`.")
    return tuple(steps)


def _is_public(host: str) -> bool:
    """Return whether a host may be reachable from the internet."""
    try:
        return ip_address(host).is_global
    except ValueError:
        return host.rpartition(".")[2] not in ("localhost", "local", "internal") and "." in host


def _token_steps(target: HostTarget) -> tuple[str, ...]:
    if target.auth != "token":
        return ()
    return (f"Set {TOKEN} in the host's environment: `webmcp-gateway token create NAME` makes a token.",)


def _claude_desktop_steps(target: HostTarget) -> tuple[str, ...]:
    if target.auth == "oauth":
        return (
            f"In Claude, choose Settings > Connectors > Add custom connector, with the URL {target.url}",
            "It logs in at the issuer by itself; a process has no login.",
        )
    again = "Quit Claude Desktop, and start it again."
    if target.auth == "token" and target.token is None:
        return (f"Put a token in place of {PLACEHOLDER}: `webmcp-gateway token create NAME` makes one.", again)
    return (again,)


HOSTS: Final[Mapping[str, HostFile]] = {
    "claude-desktop": HostFile(
        "Claude Desktop",
        lambda *where: _settings_folder(*where) / "Claude" / "claude_desktop_config.json",
        _claude_desktop,
        _claude_desktop_steps,
        stdio=True,
    ),
    "claude-code": HostFile("Claude Code", lambda _, home, __: home / ".claude.json", _claude_code, _token_steps),
    "vscode": HostFile(
        "VS Code", lambda *where: _settings_folder(*where) / "Code" / "User" / "mcp.json", _vscode, _token_steps
    ),
    "cursor": HostFile("Cursor", lambda _, home, __: home / ".cursor" / "mcp.json", _cursor, _token_steps),
    "goose": HostFile("goose", _goose_file, _goose, _token_steps, is_yaml=True),
    "chatgpt": HostFile("ChatGPT", None, lambda _: {}, _chatgpt_steps),
    "inspector": HostFile(
        "MCP Inspector",
        lambda *_: Path("inspector.json"),
        _inspector,
        lambda target: (f"npx @modelcontextprotocol/inspector --config inspector.json --server {target.name}",),
    ),
}
"""The hosts, with the places and formats of their files as their documentation has them in November 2026."""


@click.command()
@click.argument("host", type=click.Choice(list(HOSTS)))
@config_option("The configuration of the gateway.")
@click.option("--url", help="URL of the gateway's MCP endpoint, instead of the one in the configuration.")
@click.option("--app", help="Connect this app or upstream alone: /mcp/APP.")
@click.option("--name", help="The server's name in the host.  [default: webmcp-gateway, or APP]")
@click.option("--file", "file", type=click.Path(path_type=Path), help="The host's file, if it is elsewhere.")
@click.option("--write", is_flag=True, help="Add it to the host's file, after a backup.")
def connect(
    host: str, path: Path, url: str | None, app: str | None, name: str | None, file: Path | None, write: bool
) -> None:
    """Print the configuration with which HOST reaches this gateway, or add it to the host's file.

    With --write everything else in the file stays as it is, comments too, and its former content is kept beside it.

    Example: webmcp-gateway connect vscode --write
    """
    host_settings, target = HOSTS[host], _target(path, url, app, name)
    place = file or (
        host_settings.place(sys.platform, Path.home(), os.environ) if host_settings.place is not None else None
    )
    members = host_settings.members(target) if not (host_settings.stdio and target.auth == "oauth") else {}
    if not write:
        if members:
            click.echo(f"{host_settings.title}: add this to {place}, or run this command with --write", err=True)
            click.echo(edit("", members, is_yaml=host_settings.is_yaml), nl=False)
        for step in host_settings.steps(target):
            click.echo(step, err=bool(members))
        return
    if place is None or not members:
        steps = " ".join(host_settings.steps(target))
        raise Unusable(f"{host_settings.title} has no file for this: {steps}")
    if host_settings.stdio and target.auth == "token" and target.token is None:
        raise Unusable(
            f"{host_settings.title} starts a process with a token: set {TOKEN} to one, which this file will hold"
        )
    backup = write_members(place, members, is_yaml=host_settings.is_yaml)
    if backup is None:
        click.echo(f"{place} has it already")
    else:
        click.echo(
            f"added {target.name} to {place}" + (f"; its former content is in {backup}" if backup != place else "")
        )
    for step in host_settings.steps(target):
        click.echo(step)


def _target(path: Path, url: str | None, app: str | None, name: str | None) -> HostTarget:
    """Return the gateway of these options. Raises `Unusable` and DocumentError."""
    label = name or app or "webmcp-gateway"
    if not NAME.fullmatch(label):
        raise Unusable(f"--name {label!r}: a letter or digit, then up to 63 of these, _ and -")
    python = (sys.executable, "-m", "gateway", "stdio")
    only = ("--app", app) if app is not None else ()
    token = os.environ.get(TOKEN) or None
    if url is not None:
        if not is_address(url):
            raise Unusable(f"--url {url!r} is not a URL such as http://localhost:8080/mcp")
        if app is not None and (problem := app_id_problem(app)):
            raise Unusable(f"--app: {problem}")
        auth = "token" if token is not None else "none"
        whole = f"{url.rstrip('/')}/{app}" if app is not None else url
        return HostTarget(label, whole, (*python, "--url", url, *only), auth, token)
    if not path.is_file():
        raise Unusable(f"there is no {path}: name it with --config, or the gateway with --url")
    config = load_config(path, LenientEnvironment())
    if app is not None and app not in config.apps and app not in config.upstreams:
        known = ", ".join((*config.apps, *config.upstreams))
        raise Unusable(f"--app {app!r} is neither an app nor an upstream of {path} ({known})")
    whole = f"{config.server.public_url}/mcp" + (f"/{app}" if app is not None else "")
    kinds = [type(method) for method in config.auth]
    auth = "none" if NoAuth in kinds else "oauth" if OAuthIssuer in kinds else "token" if TokenAuth in kinds else "none"
    if token is not None and TokenAuth in kinds:
        auth = "token"
    return HostTarget(label, whole, (*python, "--config", str(path.absolute()), *only), auth, token)


def write_members(file: Path, members: Members, *, is_yaml: bool = False) -> Path | None:
    """Write `members` to a host's file, atomically; return the backup, `file` itself without one, None if unchanged.

    Raises `Unusable` for a file that cannot be read, edited or written, which is left as it is.
    """
    real = file.resolve()
    try:
        before = _read(real)
        text = before.decode("utf-8-sig") if before is not None else ""
        now = edit(text, members, is_yaml=is_yaml)
        if before is not None and now == text:
            return None
        if before is not None and not real.stat().st_mode & 0o222:  # replacing it asks its folder alone
            raise ValueError("it is read-only")
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        backup = file if before is None else _back_up(real, before)
        mark = b"\xef\xbb\xbf" if before is not None and before.startswith(b"\xef\xbb\xbf") else b""
        _replace(real, mark + now.encode(), before)
    except UnicodeDecodeError as error:
        raise Unusable(f"{file}: it is not UTF-8, and was not changed") from error
    except OSError as error:
        raise Unusable(f"{file}: {error.strerror or error}; it was not changed") from error
    except (ValueError, DocumentError) as error:
        raise Unusable(f"{file}: {error}; it was not changed") from error
    return backup


def edit(text: str, members: Members, *, is_yaml: bool) -> str:
    """Return the text of a file with these members. Raises ValueError and DocumentError."""
    for place, value in members.items():
        text = _set_in_yaml(text, place, value) if is_yaml else set_member(text, place, value)
    return text


def _set_in_yaml(text: str, place: tuple[str, ...], value: Json) -> str:
    """Return a YAML text with `value` at a path of two names; everything else stays.

    Raises DocumentError, and ValueError for a text whose form cannot be edited.
    """
    section, name = place
    before = _plain_yaml(text)
    if not isinstance(before, Mapping):
        raise ValueError("it is no mapping")
    entries = before.get(section) or {}
    if not isinstance(entries, Mapping):
        raise ValueError(f"{section} is no mapping")
    if name in entries and entries[name] == value:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    now = _with_yaml_entry(text, section, name, value, newline)
    try:
        after = _plain_yaml(now)
    except DocumentError:
        after = None
    if after != {**before, section: {**entries, name: value}}:
        raise ValueError(f"it is written in a form that cannot be edited here: write {section} on lines of its own")
    return now


def _plain_yaml(text: str) -> object:
    root = load(text, "it").value if text.strip() else None
    return {} if root is None else _plain_value(root)


def _with_yaml_entry(text: str, section: str, name: str, value: Json, newline: str) -> str:
    """Return the text with the entry, where the form of the text is a usual one; otherwise it may be another one."""
    root = yaml.compose(text, yaml.CSafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    key, node = next(((key, node) for key, node in pairs if key.value == section), (None, None))
    if key is None or node is None:
        end = root.end_mark.index if root is not None and pairs else len(text)
        start = text[:end] + ("" if not end or text[end - 1] == "\n" else newline)
        indent = " " * (pairs[0][0].start_mark.column if pairs else 0)
        return start + _yaml_block({section: {name: value}}, indent, newline) + text[end:]
    inner = f"{' ' * key.start_mark.column}  "
    if not isinstance(node, yaml.MappingNode) or not node.value:  # null, or {}
        line = re.compile(r"[^\r\n]*").match(text, node.end_mark.index)
        end = line.end() if line is not None else node.end_mark.index
        start = (text[: node.start_mark.index] + text[node.end_mark.index : end]).rstrip(" ")
        return start + newline + _yaml_block({name: value}, inner, newline) + text[end:].removeprefix(newline)
    known = next(((one, other) for one, other in node.value if one.value == name), None)
    if node.flow_style and known is not None:
        return text[: known[1].start_mark.index] + _one_line(value) + text[known[1].end_mark.index :]
    if node.flow_style:
        at = node.start_mark.index + 1
        return f"{text[:at]}{_one_line({name: value})[1:-1].strip()}, {text[at:]}"
    first = node.value[0][0].start_mark
    block = _yaml_block({name: value}, " " * first.column, newline)
    if known is None:
        at = first.index - first.column
        return text[:at] + block + text[at:]
    column, at = first.column, known[0].start_mark.index - first.column
    following = [one.start_mark.index - column for one, _ in node.value if one.start_mark.index - column > at]
    end = min(following, default=node.end_mark.index)
    match = _LAST_COMMENTS.search(text, at, end)
    return text[:at] + block + (match[0] if match is not None else "") + text[end:]


_LAST_COMMENTS: Final = re.compile(r"(?:^[ ]*(?:#[^\r\n]*)?\r?\n)+\Z", re.MULTILINE)
"""The empty lines and comments at the end of a text: they belong to what follows."""


def _one_line(value: Json) -> str:
    """Return a value as JSON in one line, which is also YAML."""
    return " ".join(line.strip() for line in indented_json(value).strip().split("\n"))


def _yaml_block(value: Json, indent: str, newline: str) -> str:
    lines = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000).splitlines()
    return "".join(f"{indent}{line}{newline}" for line in lines)


def _plain_value(value: object) -> object:
    """Return the value of a node, without positions."""
    if isinstance(value, Mapping):
        return {key: _plain_value(child.value) for key, child in value.items()}
    if isinstance(value, tuple):
        return [_plain_value(child.value) for child in value]
    return value


def _read(file: Path) -> bytes | None:
    """Return the content of a regular file; None if there is none. Raises OSError and ValueError."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is no regular file")
    if status.st_size > MAX_SIZE:
        raise ValueError(f"it is larger than {MAX_SIZE // 2**20} MiB")
    return file.read_bytes()


def _back_up(file: Path, content: bytes) -> Path:
    """Write the content beside the file, with its mode; return the new file."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        backup = file.with_name(f"{file.name}.{stamp}{f'-{number}' if number else ''}.backup")
        try:
            with open(backup, "xb", opener=opener) as copy:
                copy.write(content)
        except FileExistsError:
            continue
        shutil.copymode(file, backup)
        return backup
    raise ValueError("there are too many backups of it")


def _replace(file: Path, content: bytes, before: bytes | None) -> None:
    """Replace a file atomically, with its mode; a new one only its owner reads. Raises ValueError if it changed."""
    part = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        with open(part, "xb", opener=opener) as new:
            new.write(content)
            new.flush()
            os.fsync(new.fileno())
        if before is not None:
            shutil.copymode(file, part)
        if _read(file) != before:
            raise ValueError("another program has changed it meanwhile: run the command again")
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
