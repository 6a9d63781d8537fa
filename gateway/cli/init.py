"""`init`: writes a first gateway.yaml and policy for a web app."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from urllib.parse import urlsplit

import click

from gateway.cli.group import Unusable
from gateway.cli.private import opener
from gateway.cli.scan import ScanResult, scan
from gateway.config import app_id_problem
from gateway.errors import DocumentError
from gateway.policy import parse_policy

CONFIG = """\
# The configuration of webmcp-gateway. Paths are relative to this file.
server:
  listen: 127.0.0.1:{port}     # other machines cannot reach it

apps:
  {app}:
    source: {source}
    policy: policies/{app}.yaml
"""

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
{tools}
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

_SITES = ("gateway", "sandbox")
_GENERIC = frozenset({"", "app", "build", "dist", "out", "public", "site", "src", "static", "web", "www"})


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--backend", required=True, metavar="URL", help="Where the app's requests go, such as http://127.0.0.1:3000."
)
@click.option("--app", "app", metavar="ID", help="The app's id; left out, made of the folder's name.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="The gateway's port.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
def init(folder: Path, backend: str, app: str | None, port: int, force: bool) -> None:
    """Write gateway.yaml and policies/ID.yaml here, for the web app in FOLDER.

    The policy lets the app read what its own files ask for (fetch('/…') and its like, forms), and nothing else; its
    comments say how to open more.
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
    policy_path, config_path = Path("policies", f"{app}.yaml"), Path("gateway.yaml")
    texts = {
        policy_path: _policy(app, backend, network, found),
        config_path: CONFIG.format(app=app, port=port, source=yaml_text(str(folder))),
    }
    present = [str(path) for path in texts if path.exists()]
    if present and not force:
        raise Unusable(f"{', '.join(present)} would be overwritten: move it, or use --force")
    for path, text in texts.items():
        path.parent.mkdir(0o755, exist_ok=True)
        with open(path, "w", encoding="utf-8", opener=opener) as file:
            file.write(text)
    click.echo(_done(texts, found, app, port))


def _policy(app: str, backend: str, network: str, found: ScanResult) -> str:
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


def _done(texts: dict[Path, str], found: ScanResult, app: str, port: int) -> str:
    lines = [f"Wrote {path}" for path in texts]
    lines.append(
        f"Paths that the app's files name, and that it may read: {len(found.paths)}."
        if found.paths
        else "The app's files name no path to read (fetch('/…') and its like): the policy opens nothing yet."
    )
    if found.tools:
        lines.append(f"Tools of the page that a model may call: {', '.join(found.tools)}.")
    lines += [f"Not looked through (too large, or not UTF-8): {path}" for path in found.unread]
    lines += ["Next:", "  webmcp-gateway serve", f"  and open http://localhost:{port}"]
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
