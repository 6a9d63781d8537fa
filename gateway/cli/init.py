"""`init`: writes a first gateway.yaml and policy for a web app."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
from rich.text import Text

from gateway.apps import pack
from gateway.apps.advice import Advice, AppFacts, ViewSupport, advise, external_lines, report_end
from gateway.apps.survey import HOLES, Survey, survey
from gateway.assembly.app_advice import advise_on_site, read_page, survey_site
from gateway.backends.crawl import SitePage
from gateway.cli.app_doctor import built_folder, finding_lines
from gateway.cli.group import Unusable, opener
from gateway.cli.output import console
from gateway.config import app_id_problem
from gateway.errors import DocumentError
from gateway.model import Resource
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

{mode}

{backends}limits:
  timeout: 10s
  request: 1MiB
  response: 5MiB
  rate: [20/second per view, 600/minute per principal]

{routes}
{external}{tools}
tests:
{tests}
"""

BACKENDS = """\
backends:
  app:
    url: {backend}
    network: {network}     # {network_means}
    # credential: NAME      # a credential of gateway.yaml; the gateway attaches it, the app never sees it
{login}
"""

ENFORCES = """\
# Everything is enforced. To learn what the app needs, let it do more until a day, and click through it:
# mode: {{report: {{until: {until}}}}}"""

REPORTS = """\
# Until this day a request without a route is sent all the same, and recorded. Click through the app, then
# `webmcp-gateway policy learn gateway.journal --into policies/{app}.yaml` adds routes; then delete this line:
mode: {{report: {{until: {until}}}}}"""

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

_WRITTEN: Final = frozenset({"API", "files", "tools", "start"})
"""Topics of advice that the files that are written, or the other lines, cover."""

_FILE: Final = re.compile(r"/[^/]+\.(?:m?js|css|png|jpe?g|gif|svg|webp|avif|ico|woff2?)$")
"""Files whose folder is opened: pages of a backend name many of them."""

_SITES = ("gateway", "sandbox")
_GENERIC = frozenset({"", "app", "build", "dist", "out", "package", "public", "site", "src", "static", "web", "www"})


@dataclass(frozen=True, slots=True)
class FirstApp:
    """The app that the files are written for; `backend` is its URL and network, None without one.

    It is either `folder` with what was `packed` of it, or `site`: its first page, which the backend renders.
    """

    id: str
    folder: Path
    backend: tuple[str, str] | None
    survey: Survey
    packed: Resource | None
    start: str
    report: bool
    site: SitePage | None = None
    closed: tuple[str, ...] = ()
    """The paths that the app's files name, if no backend was named for them."""

    @property
    def facts(self) -> AppFacts:
        """The facts that advice is made from."""
        return AppFacts(self.id, self.survey, self.packed, start=self.start or "/")

    @property
    def source(self) -> str:
        """The app's source, and its start if it has a folder, as gateway.yaml names them."""
        if self.site is not None:
            return f"{{backend: app, start: {yaml_text(self.start)}}}"
        return yaml_text(str(self.folder)) + (f"\n    start: {yaml_text(self.start)}" if self.start else "")


@click.command()
@click.argument("source", metavar="FOLDER|URL")
@click.option(
    "--backend", metavar="URL", help="URL of the app's backend, such as http://127.0.0.1:3000, if it has one."
)
@click.option("--app", "app", metavar="ID", help="The app's id; derived from the folder's name by default.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="The gateway's port.")
@click.option("--report", is_flag=True, help="Begin in report mode, to learn what the app requests.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def init(source: str, backend: str | None, app: str | None, port: int, report: bool, force: bool) -> None:
    """Write gateway.yaml and policies/ID.yaml here, for the web app in FOLDER, or for the pages of a backend at URL.

    FOLDER holds the built app, or its build. The policy allows reading the paths that the app's files request
    (fetch('/…'), forms and similar), nothing else; its comments explain how to allow more. With --report, requests
    without a route are sent and recorded for some days, so that `policy learn` can add routes.

    URL is the first page of a running backend that renders its pages itself (Django, Rails, Flask, PHP). The policy
    allows reading this page and those to which it links, with their files.
    """
    if "://" in source:
        if backend is not None:
            raise click.UsageError("--backend is for an app in a folder: the URL names the backend already.")
        first = _read_site(app or _site_id(source), source, report=report)
    else:
        first = _read_folder(Path(source), backend, app, report=report)
    policy_path, config_path = Path("policies", f"{first.id}.yaml"), Path("gateway.yaml")
    texts = {policy_path: _policy(first), config_path: CONFIG.format(app=first.id, port=port, source=first.source)}
    _write(texts, force=force)
    for line in _summary(texts, first):
        click.echo(line)
    advice = advise(first.facts) if first.site is None else advise_on_site(first.site)
    out = console()
    for finding in _open_findings(advice, _WRITTEN if first.site is None else _WRITTEN - {"files"}):
        out.print(finding)
    for line in _end(first, port):
        click.echo(line)


def _read_folder(folder: Path, backend: str | None, app: str | None, *, report: bool) -> FirstApp:
    """Read the app in a folder. Raises `Unusable`."""
    if not folder.exists():
        raise Unusable(f"{folder}: there is no such folder or file; for the pages of a backend, name its URL")
    network = network_of(backend) if backend is not None else ""
    app = _valid_id(app or _app_id(folder))
    folder = built_folder(folder)
    if folder.is_dir() and not (folder / "index.html").is_file():
        raise Unusable(f"{folder} has no index.html: name the folder of the built web app, or its HTML file")
    if folder.is_dir() and Path.cwd().is_relative_to(folder.resolve()):
        raise Unusable(
            f"{folder} would hold gateway.yaml, and the app's pages are given all of it: call this elsewhere"
        )
    return _read_app(app, folder, (backend, network) if backend is not None else None, report=report)


def _read_site(app: str, url: str, *, report: bool) -> FirstApp:
    """Read the first page of a backend that renders its pages. Raises `Unusable`."""
    app, network = _valid_id(app), network_of(_origin(url), "URL")
    try:
        page = asyncio.run(read_page(url))
    except ValueError as error:
        raise Unusable(str(error)) from error
    site_survey = survey_site(page)
    files = {path: f"{path.rpartition('/')[0]}/**" if _FILE.search(path) else path for path in site_survey.paths}
    # A page that leads to a login is where the app begins all the same: whoever is logged in stays there.
    start = urlsplit(url if _origin(url) == _origin(page.url) else page.url).path or "/"
    paths = tuple(path for path in dict.fromkeys((*files.values(), start)) if path != "/**")
    whole = replace(site_survey, paths=paths, computed_urls=())
    return FirstApp(app, Path(), (_origin(page.url), network), whole, None, start, report, page)


def _valid_id(app: str) -> str:
    if problem := _unusable(app):
        raise Unusable(f"--app {app}: {problem}")
    return app


def _site_id(url: str) -> str:
    """Return the id for a site: the first word of its name, `app` for an address. Raises `Unusable`."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError as error:
        raise Unusable(f"URL {url}: {error}: write an absolute URL, such as http://127.0.0.1:3000/") from error
    name = re.sub("[^a-z0-9]+", "-", host.removeprefix("www.").partition(".")[0]).strip("-")[:24]
    return "app" if _unusable(name) or name == "localhost" else name


def _read_app(app: str, folder: Path, backend: tuple[str, str] | None, *, report: bool) -> FirstApp:
    """Survey and pack the app at the path where it lives. Without a backend, none of its paths is opened."""
    site_survey = survey(folder)
    plain = pack(folder, app=app, title=app, runtime="")
    start = next((start for start, _ in Counter(plain.starts).most_common(1)), "") or next(iter(site_survey.routed), "")
    site_survey = survey(folder, start) if start else site_survey
    if backend is not None:
        own = [path for origin, path in site_survey.remote if origin == _origin(backend[0])]
        shapes = {HOLES.sub("{}", path): path for path in (*site_survey.paths, *own)}
        connect = tuple(one for one in site_survey.connect if one != _origin(backend[0]))
        site_survey = replace(site_survey, paths=tuple(sorted(shapes.values())), connect=connect)
    closed = (*site_survey.paths, *site_survey.sockets) if backend is None else ()
    if closed:
        site_survey = replace(site_survey, paths=(), sockets=(), streams=frozenset())
    packed = pack(folder, app=app, title=app, runtime="", routed=_route_matcher(site_survey), start=start or "/")
    return FirstApp(app, folder, backend, site_survey, packed, start, report, closed=closed)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _write(texts: Mapping[Path, str], *, force: bool) -> None:
    """Write the files. Raises `Unusable` if one exists."""
    present = [str(path) for path in texts if path.exists()]
    if present and not force:
        raise Unusable(
            f"{', '.join(present)} would be overwritten: move {'it' if len(present) == 1 else 'them'}, or use --force"
        )
    for path, text in texts.items():
        path.parent.mkdir(0o755, exist_ok=True)
        with open(path, "w", encoding="utf-8", opener=opener) as file:
            file.write(text)


def _route_matcher(site_survey: Survey) -> Callable[[str], bool]:
    """Return whether the policy that is written lets a page get a path."""
    shapes = [re.compile(HOLES.sub("[^/]+", re.sub(r"[.]", r"\\.", path))) for path in site_survey.paths]
    return lambda url: any(shape.fullmatch(url) for shape in shapes)


def _external(first: FirstApp) -> str:
    """Return a comment that would open the other sites that the app names; empty if it names none."""
    opened = external_lines(first.facts)
    if not opened:
        return ""
    lines = [
        "# The page names other sites, which a view leaves out. Each that is opened is one that data can be sent to;",
        "# `webmcp-gateway pack --vendor` takes files into the app instead, so that nothing is opened.",
        *(f"# {line}" for line in opened),
    ]
    return "\n".join(lines) + "\n\n"


def _backends(first: FirstApp) -> str:
    if first.backend is None:
        return ""
    url, network = first.backend
    means = {
        "private": "this machine and private networks; `public` for the Internet",
        "public": "the Internet; `private` for this machine and private networks",
    }
    login = ""
    if any(origin == _origin(url) for origin, _ in first.survey.remote):
        login += f"    origins: [{yaml_text(_origin(url))}]     # the app names it in its URLs\n"
    if "authorization" in first.survey.traits:
        login += (
            "    # authorization: pass    # the page sends a token of its own login; `vault` keeps it from the page\n"
        )
    if first.site is not None and (first.site.cookies or first.site.posts):
        login += "    cookies: jar     # for a session by cookie: the gateway keeps it, the page never sees it\n"
    elif "password" in first.survey.traits:
        login += (
            "    # cookies: jar           # for a session by cookie: the gateway keeps it, the page never sees it\n"
        )
    return BACKENDS.format(backend=yaml_text(url), network=network, network_means=means[network], login=login)


def _policy(first: FirstApp) -> str:
    site_survey = first.survey
    example = next(
        (path for path in site_survey.paths if path.startswith("/api")), (*site_survey.paths, "/api/example")[0]
    )
    mode = (REPORTS if first.report else ENFORCES).format(app=first.id, until=report_end())
    return POLICY.format(
        app=first.id,
        mode=mode,
        backends=_backends(first),
        routes=(_routes(site_survey) if site_survey.paths else NOTHING)
        + _sockets(site_survey)
        + _posts(first)
        + WRITING.format(path=yaml_text(example)),
        external=_external(first),
        tools=_tools(site_survey),
        tests=_tests(example, "allow" if site_survey.paths else "deny"),
    )


def _sockets(site_survey: Survey) -> str:
    """Return comments that would open the WebSockets that the app names."""
    if not site_survey.sockets:
        return ""
    rows = (
        f"  # - {{path: {yaml_text(path)}, methods: {'[GET, POST]' if path.startswith('/socket.io') else '[GET]'}, "
        "websocket: true}\n"
        for path in site_survey.sockets
    )
    return "  # WebSockets, which carry what the page sends, under no rule:\n" + "".join(rows)


def _posts(first: FirstApp) -> str:
    """Return comments that would let the page's forms post."""
    if first.site is None or not first.site.posts:
        return ""
    rows = (f"  # - {{path: {yaml_text(path)}, methods: [POST]}}\n" for path in first.site.posts)
    return "  # Forms of the first page:\n" + "".join(rows)


def _routes(site_survey: Survey) -> str:
    streams = dict.fromkeys(site_survey.streams, ", stream: true")
    rows = "".join(
        f"  - {{path: {yaml_text(path)}, methods: [GET]{streams.get(path, '')}}}\n" for path in site_survey.paths
    )
    return f"routes:\n  # Reading, where the app's own files ask for it:\n{rows}"


def _tools(site_survey: Survey) -> str:
    if not site_survey.tools:
        return (
            "# The page's WebMCP tools that a model may call; one that is not named here is not offered:\n"
            "# tools:\n#   get_something: {}\n#   change_something: {confirm: always}\n"
        )
    rows = "".join(f"  {yaml_text(tool)}: {{}}\n" for tool in site_survey.tools)
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


def _summary(texts: Mapping[Path, str], first: FirstApp) -> Iterator[str]:
    site_survey = first.survey
    yield from (f"Wrote {path}" for path in texts)
    if first.closed:
        yield (
            f"The app's files name {first.closed[0]}{' and others' if len(first.closed) > 1 else ''}: "
            "without a backend none of them is open. If it has one, call this again with --force and --backend http://127.0.0.1:3000"
        )
    else:
        yield (
            f"Paths that the app's files name, and that it may read: {len(site_survey.paths)}."
            if site_survey.paths
            else "The app's files name no path to read (fetch('/…') and its like): the policy opens nothing yet."
        )
    if site_survey.tools:
        yield f"Tools of the page that a model may call: {', '.join(site_survey.tools)}."
    if first.start:
        yield f"It begins at {first.start} of its site{', as its files say' if first.site is None else ''}."
    yield from (f"Not looked through (too large, or not UTF-8): {path}" for path in site_survey.unread)
    if site_survey.computed_urls:
        yield (
            "Not seen: requests whose URLs are computed when the page runs, such as at "
            f"{', '.join(site_survey.computed_urls)}. Report mode records them."
        )


def _open_findings(advice: Advice, topics: frozenset[str]) -> Iterator[Text]:
    """Yield what does not work by what was written: each with its line, or why no host can do it."""
    for verdict, heading in ((ViewSupport.NEEDS, "To look at:"), (ViewSupport.NEVER, "No host can do:")):
        findings = [one for one in advice.of(verdict) if one.topic not in topics]
        if findings:
            yield Text(heading)
        for one in findings:
            yield from finding_lines(one)


def _packed_lines(packed: Resource) -> Iterator[str]:
    yield f"The app is packed into {len(packed.html.encode()):,} bytes, without the view runtime."
    yield from (f"  left out: {warning}" for warning in packed.warnings[:LISTED])
    if (more := len(packed.warnings) - LISTED) > 0:
        yield f"  and {more} more, which `webmcp-gateway pack` lists"


def _end(first: FirstApp, port: int) -> Iterator[str]:
    """Yield the result of packing, and the next commands."""
    packed = first.packed
    if packed is None:
        yield "Its pages come from the backend, each into a frame of its own: nothing is packed."
    else:
        yield from _packed_lines(packed)
    policy = f"policies/{first.id}.yaml"
    yield "Next:"
    yield f"  webmcp-gateway serve     and open http://localhost:{port}"
    if first.report:
        yield f"  webmcp-gateway policy learn gateway.journal --into {policy}     after clicking through the app"
        yield f"  webmcp-gateway policy test {policy}     after deleting the line `mode:` there, to enforce"
    else:
        yield f"  webmcp-gateway policy test {policy}"
        example = _plain(next(iter(first.survey.paths), "/api/example"))
        yield f"  webmcp-gateway policy explain POST {example}     for a request that is refused"


def _app_id(folder: Path) -> str:
    names = [folder.resolve().stem if folder.is_file() else folder.resolve().name]
    names += [parent.name for parent in folder.resolve().parents]
    name = next((name for name in names if name.lower() not in _GENERIC), "app")
    letters = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    name = re.sub("^[^a-z]+", "", letters)[:24].strip("-")
    return "app" if _unusable(name) else name


def _unusable(app: str) -> str | None:
    return f"{app}.localhost is a site of the gateway" if app in _SITES else app_id_problem(app)


def network_of(backend: str, name: str = "--backend") -> str:
    """Return `private` if the backend's host is loopback or private by its form, else `public`.

    Raises `Unusable`, which gives the argument by its name.
    """
    try:
        url = urlsplit(backend)
        host = url.hostname or ""
    except ValueError as error:
        raise Unusable(f"{name} {backend}: {error}") from error
    if url.scheme not in ("http", "https") or not host:
        raise Unusable(f"{name} {backend}: write an absolute URL, such as http://127.0.0.1:3000")
    try:
        private = not ipaddress.ip_address(host).is_global
    except ValueError:
        private = host == "localhost" or host.endswith(".localhost") or "." not in host
    network = "private" if private else "public"
    try:
        parse_policy(BACKEND.format(backend=yaml_text(backend), network=network), "")
    except DocumentError as error:
        raise Unusable(f"{name} {error.problems[0].message.removeprefix('url: ')}") from error
    return network


def yaml_text(text: str) -> str:
    """Return a text as YAML, quoted if it could be read as something else."""
    plain = re.fullmatch(r"[A-Za-z./][A-Za-z0-9_./:-]*[A-Za-z0-9_/]|[A-Za-z]", text, re.ASCII)
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if plain and text not in ("true", "false", "null") else f'"{quoted}"'
