"""`init`: writes a first gateway.yaml and policy for a web app."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from gateway.apps import pack
from gateway.cli.group import Unusable, opener
from gateway.config import app_id_problem
from gateway.errors import DocumentError
from gateway.model import Resource
from gateway.policy import parse_policy

SUFFIXES: Final = frozenset({".html", ".htm", ".js", ".mjs", ".jsx", ".ts", ".mts", ".tsx", ".vue", ".svelte"})
MAX_FILE: Final = 4 * 1024 * 1024
"""Bytes; larger files are skipped and reported."""

_FETCH = re.compile(
    r"""(?:\bfetch\s*\(                                                # fetch('/…')
         |\.open\s*\(\s*["'`](?i:GET)["'`]\s*,                         # request.open('GET', '/…')
         |(?:\b(?:axios|http|jQuery|ky)|\$http|\$)\s*\.\s*get(?:JSON)?\s*(?:<[^()]{0,200}>\s*)?\(  # axios.get('/…')
         |(?P<stream>\bnew\s+EventSource\s*\()                          # new EventSource('/…')
        )\s*(?:"(?P<double>/[^"\s]*)"|'(?P<single>/[^'\s]*)'|`(?P<template>/[^`\s]*)`)\s*(?P<plus>\+)?
        (?![^,(){};]{0,100},\s*\{(?:[^{}]|\{[^{}]{0,300}\}){0,300}?  # not fetch('/…', {method: 'POST'})
           \bmethod["']?\s*:\s*["'`](?!(?i:GET)["'`]))""",
    re.VERBOSE,
)
_FOREIGN = re.compile(
    r"""(?:\bfetch|\baxios(?:\.\w+)?|\bnew\s+(?:EventSource|WebSocket)|\.open)\s*\(\s*(?:["'`][A-Za-z]+["'`]\s*,\s*)?"""
    r"""["'`]((?:https|wss)://[A-Za-z0-9.-]+(?::\d+)?)(?=[/?"'`])"""
)
_BASE = re.compile(
    r"""(?:\bbasename["']?\s*[:=]\s*\{?|\bbasePath["']?\s*:|\bcreateWebHistory\s*\(|__sveltekit_\w+\s*=\s*\{\s*base\s*:)"""
    r"""\s*["'`](/[A-Za-z0-9][A-Za-z0-9._~/-]*)["'`]"""
)
_FORM = re.compile(r"""<form(?=\s)(?P<attributes>(?:[^<>"']|"[^"]*"|'[^']*'){0,4000})""", re.IGNORECASE)
_LOADS = re.compile(
    r"""<(?:img|source|video|audio|track|script|link)(?=\s)(?P<attributes>(?:[^<>"']|"[^"]*"|'[^']*'){0,4000})""",
    re.IGNORECASE,
)
_SHEET = re.compile("stylesheet|preload", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""(?<=\s)([a-z]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=<>`{]+))""", re.IGNORECASE)
_NAME = re.compile("[A-Za-z0-9_.-]{1,128}", re.ASCII)
_TOOL = re.compile(r"""\bregisterTool\s*\(\s*\{\s*["']?name["']?\s*:\s*["'`]([A-Za-z0-9_.-]{1,128})["'`]""")
_HOLE = re.compile(r"\$\{([^{}]*)\}")
_HOLES = re.compile(r"\{[^{}]*\}")
_LAST_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,31})\W*$", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+|\{[A-Za-z][A-Za-z0-9_]*\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ScanResult:
    """Path patterns (`/api/cart/{id}`) and tool names, sorted; `unread` are files that are too large or not text.

    `streams` are the paths whose answers are event streams, `connect` the origins of other sites that are requested,
    `routed` the paths at which routers begin.
    """

    paths: tuple[str, ...]
    streams: frozenset[str]
    tools: tuple[str, ...]
    unread: tuple[Path, ...]
    connect: tuple[str, ...] = ()
    routed: tuple[str, ...] = ()


def scan(source: Path, start: str = "/") -> ScanResult:
    """Scan the web app at `source`, a folder or one HTML file, which is served at `start`."""
    paths: dict[str, str] = {}  # by shape: the names of parameters do not matter
    streams: set[str] = set()
    tools: set[str] = set()
    unread: list[Path] = []
    connect: set[str] = set()
    routed: dict[str, None] = {}
    for file in _files(source):
        try:
            text = file.read_text(encoding="utf-8") if file.stat().st_size <= MAX_FILE else None
        except UnicodeDecodeError:
            text = None
        if text is None:
            unread.append(file)
            continue
        forms = [_attributes(match["attributes"]) for match in _FORM.finditer(text)]
        asked = [(_pattern(match), match["stream"]) for match in _FETCH.finditer(text)]
        loaded = [
            path for match in _LOADS.finditer(text) for path in _load(_attributes(match["attributes"]), source, start)
        ]
        for path, stream in (*asked, *((_action(form), None) for form in forms), *((path, None) for path in loaded)):
            if path is not None:
                shape = _HOLES.sub("{}", path)
                paths[shape] = path
                if stream:
                    streams.add(shape)
        tools.update(_TOOL.findall(text))
        connect.update(re.sub("^ws", "http", match[1]) for match in _FOREIGN.finditer(text))
        routed |= dict.fromkeys(match[1] for match in _BASE.finditer(text))
        tools.update(name for form in forms if _NAME.fullmatch(name := form.get("toolname", "")))
    streamed = frozenset(paths[shape] for shape in streams)
    found = tuple(sorted(paths.values())), streamed, tuple(sorted(tools)), tuple(unread)
    return ScanResult(*found, tuple(sorted(connect)), tuple(routed))


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
        return
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        hidden = any(part.startswith(".") or part == "node_modules" for part in parts)
        if not hidden and path.suffix in SUFFIXES and path.is_file():
            yield path


def _attributes(text: str) -> dict[str, str]:
    return {name.lower(): double or single or bare for name, double, single, bare in _ATTRIBUTE.findall(text)}


def _action(form: dict[str, str]) -> str | None:
    """Return the path that a form requests; None if it is not GET, or goes to another site."""
    action = form.get("action", "")
    return _path(action) if action.startswith("/") and form.get("method", "get").lower() == "get" else None


def _load(element: dict[str, str], source: Path, start: str) -> Iterator[str]:
    """Yield the paths of an element's files that are not in the app's folder, so on the backend."""
    folder = source if source.is_dir() else source.parent
    candidates = [candidate.split()[0] for candidate in element.get("srcset", "").split(",") if candidate.strip()]
    sheet = element.get("href", "") if _SHEET.search(element.get("rel", "")) else ""
    for url in (element.get("src", ""), element.get("poster", ""), sheet, *candidates):
        path = _path(url) if url.startswith("/") else None
        places = (path, path.removeprefix(start)) if path is not None else ()
        if path is not None and not any((folder / place.lstrip("/")).exists() for place in places):
            yield path


def _pattern(match: re.Match[str]) -> str | None:
    """Return the path that a script requests."""
    text = match["double"] or match["single"] or _HOLE.sub(_parameter, match["template"] or "")
    return _path(text + "{item}" if match["plus"] and text.endswith("/") and not re.search("[?#]", text) else text)


def _path(text: str) -> str | None:
    """Return the path as a policy writes it; None if a placeholder is only a part of a segment."""
    path = re.split("[?#]", text, maxsplit=1)[0]
    segments = path.split("/")[1:]
    if not all(_SEGMENT.fullmatch(segment) for segment in segments) or {".", ".."} & set(segments):
        return None
    names = [segment for segment in segments if segment.startswith("{")]
    return path if len(set(names)) == len(names) else None


def _parameter(match: re.Match[str]) -> str:
    name = _LAST_NAME.search(match[1])
    return "{" + (name[1] if name else "item") + "}"


CONFIG = """\
# The configuration of webmcp-gateway. Paths are relative to this file.
server:
  listen: 127.0.0.1:{port}     # other machines cannot reach it

apps:
  {app}:
    source: {source}
    policy: policies/{app}.yaml
{start}"""

POLICY = """\
# What the app "{app}" may do. Nothing is allowed that no rule allows.
# Check it with: webmcp-gateway policy test policies/{app}.yaml
version: 1

backends:
  app:
    url: {backend}
    network: {network}     # {network_means}
    # credential: NAME      # a credential of gateway.yaml; the gateway attaches it, the app never sees it

limits:
  timeout: 10s
  request: 1MiB
  response: 5MiB
  rate: [20/second per view, 600/minute per principal]

{routes}
{external}{tools}
tests:
{tests}
"""

WRITING = """\
  # To let the app change things, name the path and the methods. With `confirm` a person is asked first:
  # `when: model` asks if a model's tool call caused the request, `always` asks every time.
  # - path: {path}
  #   methods: [POST]
  #   confirm: {{when: model, message: "Allow {{request.method}} {{request.path}}?"}}
"""

NOTHING = """\
routes: []
  # The app's files name no path to read (fetch('/…') and its like), so nothing is open yet.
  # To open something, write routes in the place of the brackets:
  # - {path: /api/example, methods: [GET]}
"""

BACKEND = "version: 1\nbackends: {{app: {{url: {backend}, network: {network}}}}}\n"

LISTED: Final = 10
"""Warnings of packing that are shown."""

_SITES = ("gateway", "sandbox")
_GENERIC = frozenset({"", "app", "build", "dist", "out", "public", "site", "src", "static", "web", "www"})


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--backend", required=True, metavar="URL", help="URL of the app's backend, such as http://127.0.0.1:3000."
)
@click.option("--app", "app", metavar="ID", help="The app's id; derived from the folder's name by default.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="The gateway's port.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def init(folder: Path, backend: str, app: str | None, port: int, force: bool) -> None:
    """Write gateway.yaml and policies/ID.yaml here, for the web app in FOLDER.

    The policy allows reading the paths that the app's files request (fetch('/…'), forms and similar), nothing else; its
    comments explain how to allow more.
    """
    network = network_of(backend)
    app = app or _app_id(folder)
    if problem := _unusable(app):
        raise Unusable(f"--app {app}: {problem}")
    if folder.is_dir() and not (folder / "index.html").is_file():
        raise Unusable(f"{folder} has no index.html: name the folder of the built web app, or its HTML file")
    if folder.is_dir() and Path.cwd().is_relative_to(folder.resolve()):
        raise Unusable(
            f"{folder} would hold gateway.yaml, and the app's pages are given all of it: call this elsewhere"
        )
    found = scan(folder)
    plain = pack(folder, app=app, title=app, runtime="")
    start = next((start for start, _ in Counter(plain.starts).most_common(1)), "") or next(iter(found.routed), "")
    found = scan(folder, start) if start else found
    packed = pack(folder, app=app, title=app, runtime="", routed=_routed(found), start=start or "/")
    policy_path, config_path = Path("policies", f"{app}.yaml"), Path("gateway.yaml")
    texts = {
        policy_path: _policy(app, backend, network, found, packed.foreign),
        config_path: CONFIG.format(
            app=app, port=port, source=yaml_text(str(folder)), start=f"    start: {yaml_text(start)}\n" if start else ""
        ),
    }
    present = [str(path) for path in texts if path.exists()]
    if present and not force:
        raise Unusable(
            f"{', '.join(present)} would be overwritten: move {'it' if len(present) == 1 else 'them'}, or use --force"
        )
    for path, text in texts.items():
        path.parent.mkdir(0o755, exist_ok=True)
        with open(path, "w", encoding="utf-8", opener=opener) as file:
            file.write(text)
    click.echo(_summary(texts, found, app, port, start, packed))


def _routed(found: ScanResult) -> Callable[[str], bool]:
    """Return whether the policy that is written lets a page get a path."""
    shapes = [re.compile(_HOLES.sub("[^/]+", re.sub(r"[.]", r"\\.", path))) for path in found.paths]
    return lambda url: any(shape.fullmatch(url) for shape in shapes)


def _external(found: ScanResult, foreign: Sequence[tuple[str, str]]) -> str:
    """Return a comment that would open the other sites that the app names; empty if it names none."""
    origins: dict[str, dict[str, None]] = {}
    for kind, url in foreign:
        parts = urlsplit(url)
        origins.setdefault(kind, {})[url if kind == "scripts" else f"{parts.scheme}://{parts.netloc}"] = None
    if "https://fonts.googleapis.com" in origins.get("styles", {}):
        origins.setdefault("fonts", {})["https://fonts.gstatic.com"] = None  # its sheets name files there
    if found.connect:
        origins["connect"] = dict.fromkeys(found.connect)
    if not origins:
        return ""
    lines = [
        "# The page names other sites, which a view leaves out. Each that is opened is one that data can be sent to;"
    ]
    lines += [
        "# `webmcp-gateway pack --vendor` takes files into the app instead, so that nothing is opened.",
        "# external:",
    ]
    for kind, urls in origins.items():
        if kind == "scripts":
            lines.append("#   scripts:")
            lines += [f"#     - {{url: {yaml_text(url)}, integrity: sha384-…}}" for url in urls]
        else:
            lines.append(f"#   {kind}: [{', '.join(map(yaml_text, urls))}]")
    return "\n".join(lines) + "\n\n"


def _policy(app: str, backend: str, network: str, found: ScanResult, foreign: Sequence[tuple[str, str]]) -> str:
    means = {
        "private": "this machine and private networks; `public` for the Internet",
        "public": "the Internet; `private` for this machine and private networks",
    }
    example = next((path for path in found.paths if path.startswith("/api")), (*found.paths, "/api/example")[0])
    return POLICY.format(
        app=app,
        backend=yaml_text(backend),
        network=network,
        network_means=means[network],
        routes=(_routes(found) if found.paths else NOTHING) + WRITING.format(path=yaml_text(example)),
        external=_external(found, foreign),
        tools=_tools(found),
        tests=_tests(example, "allow" if found.paths else "deny"),
    )


def _routes(found: ScanResult) -> str:
    streams = dict.fromkeys(found.streams, ", stream: true")
    rows = "".join(f"  - {{path: {yaml_text(path)}, methods: [GET]{streams.get(path, '')}}}\n" for path in found.paths)
    return f"routes:\n  # Reading, where the app's own files ask for it:\n{rows}"


def _tools(found: ScanResult) -> str:
    if not found.tools:
        return (
            "# The page's WebMCP tools that a model may call; one that is not named here is not offered:\n"
            "# tools:\n#   get_something: {}\n#   change_something: {confirm: always}\n"
        )
    rows = "".join(f"  {yaml_text(tool)}: {{}}\n" for tool in found.tools)
    return (
        "# The page's WebMCP tools that a model may call; one that is not named here is not offered.\n"
        "# What they fetch is held by the routes above. `confirm: always` asks a person before a call.\n"
        f"tools:\n{rows}"
    )


def _tests(path: str, reading: str) -> str:
    expected = {"GET": reading, "POST": "deny", "DELETE": "deny"}
    rows = (f"  - {{request: {method} {_plain(path)}, expect: {effect}}}" for method, effect in expected.items())
    return "\n".join(rows)


def _plain(path: str) -> str:
    """Return a path that the pattern `path` matches."""
    return re.sub(r"\{[^}]*\}|\*\*", "1", path)


def _summary(texts: dict[Path, str], found: ScanResult, app: str, port: int, start: str, packed: Resource) -> str:
    lines = [f"Wrote {path}" for path in texts]
    lines.append(
        f"Paths that the app's files name, and that it may read: {len(found.paths)}."
        if found.paths
        else "The app's files name no path to read (fetch('/…') and its like): the policy opens nothing yet."
    )
    if found.tools:
        lines.append(f"Tools of the page that a model may call: {', '.join(found.tools)}.")
    lines += [f"Not looked through (too large, or not UTF-8): {path}" for path in found.unread]
    if start:
        lines.append(f"It begins at {start} of its site, as its files say.")
    lines.append(f"The app is packed into {len(packed.html.encode()):,} bytes, without the view runtime.")
    lines += [f"  left out: {warning}" for warning in packed.warnings[:LISTED]]
    if (more := len(packed.warnings) - LISTED) > 0:
        lines.append(f"  and {more} more, which `webmcp-gateway pack` lists")
    lines += [
        "Next:",
        f"  webmcp-gateway policy test policies/{app}.yaml",
        "  webmcp-gateway serve",
        f"  and open http://localhost:{port}",
    ]
    return "\n".join(lines)


def _app_id(folder: Path) -> str:
    names = [folder.resolve().stem if folder.is_file() else folder.resolve().name]
    names += [parent.name for parent in folder.resolve().parents]
    name = next((name for name in names if name.lower() not in _GENERIC), "app")
    letters = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    name = re.sub("^[^a-z]+", "", letters)[:24].strip("-")
    return "app" if _unusable(name) else name


def _unusable(app: str) -> str | None:
    return f"{app}.localhost is a site of the gateway" if app in _SITES else app_id_problem(app)


def network_of(backend: str) -> str:
    """Return `private` if the backend's host is loopback or private by its form, else `public`. Raises `Unusable`."""
    try:
        url = urlsplit(backend)
        host = url.hostname or ""
    except ValueError as error:
        raise Unusable(f"--backend {backend}: {error}") from error
    if url.scheme not in ("http", "https") or not host:
        raise Unusable(f"--backend {backend}: write an absolute URL, such as http://127.0.0.1:3000")
    try:
        private = not ipaddress.ip_address(host).is_global
    except ValueError:
        private = host == "localhost" or host.endswith(".localhost") or "." not in host
    network = "private" if private else "public"
    try:
        parse_policy(BACKEND.format(backend=yaml_text(backend), network=network), "")
    except DocumentError as error:
        raise Unusable(f"--backend {error.problems[0].message.removeprefix('url: ')}") from error
    return network


def yaml_text(text: str) -> str:
    """Return a text as YAML, quoted if it could be read as something else."""
    plain = re.fullmatch(r"[A-Za-z./][A-Za-z0-9_./:-]*[A-Za-z0-9_/]|[A-Za-z]", text, re.ASCII)
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if plain and text not in ("true", "false", "null") else f'"{quoted}"'
