"""Advises on an app before its first run: what works in a view, what needs a line, what no host can do, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from gateway.apps.pack import pack, permissions_of, size_problem
from gateway.apps.scripts import WORKER_FILE
from gateway.apps.survey import HOLES, Survey, survey
from gateway.errors import DocumentError
from gateway.model import Json, Resource
from gateway.policy import Policy
from gateway.policy.obligations import AppAuthorization
from gateway.policy.page_rules import NO_EXTERNAL
from gateway.policy.rules import Route

OWN: Final = "our own"
HOSTS: Final = ("Claude", "ChatGPT", "VS Code", "goose", OWN)
"""The hosts that the advice is about; `OWN` are the console and other host pages of the gateway."""

FRAMING: Final[Mapping[str, str]] = {
    "Claude": "it may refuse pages of other sites in frames (`frameDomains`)",
    "VS Code": "it may refuse pages of other sites in frames (`frameDomains`)",
    "goose": "it may refuse pages of other sites in frames (`frameDomains`)",
}
"""Hosts whose makers or users report that they do not, or did not, follow that list of MCP Apps."""

ROUTES: Final = "`routes` in the policy"

REPORT_DAYS: Final = 14
"""Days of report mode that are proposed."""

LISTED: Final = 12
"""Paths and origins that one finding names."""


def report_end() -> str:
    """Return the last day of report mode that is proposed."""
    return (datetime.now(UTC) + timedelta(days=REPORT_DAYS)).date().isoformat()


class ViewSupport(StrEnum):
    """Whether something works in a view."""

    WORKS = "works"
    NEEDS = "needs"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, and whether it works.

    `lines` are to be written into the place `under`, such as "`routes` in the policy". `places` are in the app.
    `hosts` are hosts with a restriction of their own.
    """

    topic: str
    what: str
    verdict: ViewSupport
    detail: str = ""
    lines: tuple[str, ...] = ()
    under: str = ""
    places: tuple[str, ...] = ()
    hosts: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        """Return it for `--json` and the console."""
        return {
            "topic": self.topic,
            "what": self.what,
            "verdict": str(self.verdict),
            "detail": self.detail,
            "lines": [*self.lines],
            "under": self.under,
            "places": [*self.places],
            "hosts": dict(self.hosts),
        }


@dataclass(frozen=True, slots=True)
class Advice:
    """All findings about one app, and what each host restricts; `problems` are why no view can show it."""

    app: str
    findings: Sequence[Finding]
    problems: Sequence[str] = ()

    def of(self, verdict: ViewSupport) -> list[Finding]:
        """Return the findings with this verdict."""
        return [one for one in self.findings if one.verdict is verdict]

    def hosts(self) -> dict[str, list[str]]:
        """Return the restrictions by host; an empty list where everything works that works anywhere."""
        return {
            host: [f"{one.topic}: {one.hosts[host]}" for one in self.findings if host in one.hosts] for host in HOSTS
        }

    def as_json(self) -> dict[str, Json]:
        """Return it for `--json` and the console."""
        hosts: dict[str, Json] = {host: [*limits] for host, limits in self.hosts().items()}
        return {
            "app": self.app,
            "problems": [*self.problems],
            "findings": [one.as_json() for one in self.findings],
            "hosts": hosts,
        }


@dataclass(frozen=True, slots=True)
class AppFacts:
    """The facts from which the advice is made.

    `policy` is None before there is one; `packed` for an app that has no folder.
    `server_rendered`: its pages come from the backend. `kept_storage`: `storage: gateway` is set, `dedicated`:
    `sandbox: dedicated`.
    """

    app: str
    survey: Survey
    packed: Resource | None = None
    policy: Policy | None = None
    start: str = "/"
    permissions: Sequence[str] = ()
    kept_storage: bool = False
    server_rendered: bool = False
    dedicated: bool = False


def examine(
    app: str,
    source: Path,
    *,
    start: str = "/",
    policy: Policy | None = None,
    permissions: Sequence[str] = (),
    kept_storage: bool = False,
    dedicated: bool = False,
) -> Advice:
    """Survey and pack the app in a folder or file, and return the advice about it; it may have no page."""
    site_survey = survey(source, start)
    try:
        packed = pack(
            source,
            app=app,
            title=app,
            runtime="",
            start=start,
            permissions=permissions,
            frames=policy.frames if policy is not None else (),
            external=policy.external if policy is not None else NO_EXTERNAL,
            routed=policy.lets_get if policy is not None else lambda _: False,
        )
    except DocumentError as error:
        return Advice(app, (), [str(problem) for problem in error.problems])
    facts = AppFacts(
        app, site_survey, packed, policy, start, permissions, kept_storage=kept_storage, dedicated=dedicated
    )
    problem = size_problem(packed)
    return advise(facts) if problem is None else replace(advise(facts), problems=[str(problem)])


def advise(facts: AppFacts) -> Advice:
    """Return the advice about an app."""
    parts: Iterable[Callable[[AppFacts], Iterator[Finding]]] = (
        _framework,
        _routing,
        _paths,
        _sockets,
        _other_sites,
        _frames,
        _storage,
        _login,
        _tools,
        _permissions,
        _workers,
        _traits,
        _packing,
    )
    return Advice(facts.app, [one for part in parts for one in part(facts)])


def _where(facts: AppFacts, *traits: str) -> tuple[str, ...]:
    return tuple(facts.survey.traits[trait] for trait in traits if trait in facts.survey.traits)


def _has(facts: AppFacts, *traits: str) -> bool:
    return any(trait in facts.survey.traits for trait in traits)


def _some(names: Sequence[str]) -> str:
    more = f", and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _settings(facts: AppFacts) -> str:
    return f"`apps.{facts.app}` in gateway.yaml"


def _route_line(path: str, more: str = "", methods: str = "[GET]") -> str:
    return f'- {{path: "{path}", methods: {methods}{more}}}'


def _framework(facts: AppFacts) -> Iterator[Finding]:
    names = facts.survey.frameworks
    if names:
        yield Finding("framework", _some(names), ViewSupport.WORKS)
    if facts.server_rendered:
        yield Finding(
            "pages",
            "the backend renders them",
            ViewSupport.WORKS,
            "each is loaded into a fresh frame of the view, under the policy",
        )


def _routing(facts: AppFacts) -> Iterator[Finding]:
    kinds = [name for name, trait in (("the history", "history"), ("the hash", "hash routes")) if _has(facts, trait)]
    if kinds:
        yield Finding(
            "router", f"by {' and '.join(kinds)}", ViewSupport.WORKS, places=_where(facts, "history", "hash routes")
        )
    starts = dict.fromkeys([*(facts.packed.starts if facts.packed is not None else ()), *facts.survey.routed])
    for start in [start for start in starts if not facts.start.startswith(start.rstrip("/"))][:1]:
        yield Finding(
            "start",
            f"the app lives at {start}",
            ViewSupport.NEEDS,
            "without it, its router shows nothing, or its files are missing",
            (f"start: {start}",),
            _settings(facts),
        )


def _route_of(policy: Policy, path: str, method: str = "GET") -> Route | None:
    """Return the route of a policy that allows a path pattern, with any value of its parameters."""
    route = policy.routes.find(method, HOLES.sub("1", path), policy.only_backend or "")
    return route if route is not None and route.deny is None else None


def _paths(facts: AppFacts) -> Iterator[Finding]:
    site_survey, policy = facts.survey, facts.policy
    open_paths = [path for path in site_survey.paths if policy is not None and _route_of(policy, path) is not None]
    closed = [path for path in site_survey.paths if path not in open_paths]
    if open_paths:
        yield Finding("API", f"reads {_some(open_paths)}", ViewSupport.WORKS)
    if closed:
        streams = dict.fromkeys(site_survey.streams, ", stream: true")
        yield Finding(
            "API",
            f"reads {_some(closed)}",
            ViewSupport.NEEDS,
            "no route of the policy allows it" if policy is not None else "",
            tuple(_route_line(path, streams.get(path, "")) for path in closed[:LISTED]),
            ROUTES,
        )
    if site_survey.computed_urls:
        reports = policy is not None and policy.mode is not None
        learn = "click through the app, then `webmcp-gateway policy learn`"
        yield Finding(
            "API",
            "some requests have URLs that are computed when the page runs, and are in no file",
            ViewSupport.NEEDS,
            learn if reports else f"in report mode they are recorded: {learn}",
            () if reports else (f"mode: {{report: {{until: {report_end()}}}}}",),
            "" if reports else "the policy",
            site_survey.computed_urls,
        )


def _sockets(facts: AppFacts) -> Iterator[Finding]:
    site_survey, policy = facts.survey, facts.policy
    for path in site_survey.sockets:
        route = _route_of(policy, path) if policy is not None else None
        carries = route is not None and route.decision.obligations.socket is not None
        methods = "[GET, POST]" if path.startswith("/socket.io") else "[GET]"
        yield Finding(
            "WebSocket",
            path,
            ViewSupport.WORKS if carries else ViewSupport.NEEDS,
            "",
            () if carries else (_route_line(path, ", websocket: true", methods),),
            "" if carries else ROUTES,
            _where(facts, "websocket"),
        )
    if not site_survey.sockets and _has(facts, "websocket"):
        yield Finding(
            "WebSocket",
            "its address is computed when the page runs",
            ViewSupport.NEEDS,
            "report mode records it",
            (_route_line("/PATH", ", websocket: true"),),
            ROUTES,
            _where(facts, "websocket"),
        )
    if _has(facts, "event stream") and not site_survey.streams:
        yield Finding(
            "event stream",
            "its address is computed when the page runs",
            ViewSupport.NEEDS,
            "its route needs `stream`",
            (_route_line("/PATH", ", stream: true"),),
            ROUTES,
            _where(facts, "event stream"),
        )
    if _has(facts, "webrtc"):
        yield Finding(
            "WebRTC",
            "connections between browsers, or by QUIC",
            ViewSupport.NEVER,
            "the gateway carries requests and WebSockets; what goes past it is under no policy",
            places=_where(facts, "webrtc"),
        )


def _origins(facts: AppFacts) -> dict[str, dict[str, None]]:
    """Return what the page names of other sites, by kind of `external`, without what the policy opens."""
    origins: dict[str, dict[str, None]] = {}
    for kind, url in facts.packed.foreign if facts.packed is not None else ():
        parts = urlsplit(url)
        origins.setdefault(kind, {})[url if kind == "scripts" else f"{parts.scheme}://{parts.netloc}"] = None
    if "https://fonts.googleapis.com" in origins.get("styles", {}):
        origins.setdefault("fonts", {})["https://fonts.gstatic.com"] = None  # its sheets name files there
    policy = facts.policy
    connects = [
        origin
        for origin in facts.survey.connect
        if policy is None or (origin not in policy.origins and origin not in policy.external.connects())
    ]
    if connects:
        origins["connect"] = dict.fromkeys(connects)
    return origins


def external_lines(facts: AppFacts) -> list[str]:
    """Return the lines of `external` that would open the other sites that the app names; empty if it names none."""
    lines: list[str] = []
    for kind, urls in _origins(facts).items():
        if kind == "scripts":
            lines += ["  scripts:", *(f'    - {{url: "{url}", integrity: sha384-…}}' for url in urls)]
        else:
            quoted = ", ".join(f'"{url}"' for url in urls)
            lines.append(f"  {kind}: [{quoted}]")
    return ["external:", *lines] if lines else []


def _other_sites(facts: AppFacts) -> Iterator[Finding]:
    origins = _origins(facts)
    connects = origins.pop("connect", {})
    lines = [line for line in external_lines(facts) if not line.startswith("  connect:")]
    if origins:
        descriptions = [f"{kind} of {_some([*urls])}" for kind, urls in origins.items()]
        yield Finding(
            "other sites",
            "; ".join(descriptions),
            ViewSupport.NEEDS,
            "`webmcp-gateway pack --vendor` takes the files into the app once; or open their sites, to which data can "
            "then be sent",
            tuple(lines),
            "the policy",
            hosts=dict.fromkeys(
                (host for host in HOSTS if host != OWN),
                "files of other sites load only if it follows `resourceDomains`",
            ),
        )
    if connects:
        yield Finding(
            "other sites",
            f"requests to {_some([*connects])}",
            ViewSupport.NEEDS,
            "as a backend, under the policy; or as `connect` of `external`, past it",
            tuple(f'other: {{url: "{origin}", origins: ["{origin}"]}}' for origin in connects),
            "`backends` in the policy",
        )


def _frames(facts: AppFacts) -> Iterator[Finding]:
    packed = facts.packed
    if packed is not None and (framed := packed.meta["csp"].get("frameDomains")):
        yield Finding("frames", f"pages of {_some(framed)}", ViewSupport.WORKS, hosts=FRAMING)
    if _has(facts, "frames of its own"):
        works = facts.dedicated or facts.server_rendered
        yield Finding(
            "frames",
            "frames that the page makes itself, such as editors and previews",
            ViewSupport.WORKS if works else ViewSupport.NEEDS,
            ""
            if works
            else "if it reads what is in them: frames without an origin show it, but cannot read each other",
            () if works else ("sandbox: dedicated",),
            "" if works else _settings(facts),
            _where(facts, "frames of its own"),
            dict.fromkeys((host for host in HOSTS if host != OWN), "frames that the page makes may not be readable"),
        )
    if _has(facts, "plugin content"):
        yield Finding(
            "frames",
            "a PDF or another file for a plugin in <object> or <embed>",
            ViewSupport.NEVER,
            "link to it: the host opens it",
            places=_where(facts, "plugin content"),
        )


def _storage(facts: AppFacts) -> Iterator[Finding]:
    if _has(facts, "storage"):
        yield Finding(
            "storage",
            "localStorage, sessionStorage",
            ViewSupport.WORKS,
            "kept on the gateway for each person" if facts.kept_storage else "for the lifetime of a view; to keep it:",
            () if facts.kept_storage else ("storage: gateway",),
            "" if facts.kept_storage else _settings(facts),
            _where(facts, "storage"),
        )
    if _has(facts, "indexeddb"):
        yield Finding(
            "storage",
            "IndexedDB",
            ViewSupport.WORKS,
            "in memory, for the lifetime of a view",
            places=_where(facts, "indexeddb"),
        )
    if _has(facts, "cookies"):
        yield Finding(
            "storage",
            "document.cookie",
            ViewSupport.WORKS,
            "the page's own cookies, for the lifetime of a view",
            places=_where(facts, "cookies"),
        )


def _login(facts: AppFacts) -> Iterator[Finding]:
    policy = facts.policy
    specs = [*policy.backends.values()] if policy is not None else []
    if _has(facts, "authorization"):
        ready = [one for one in specs if one.credential is not None or one.authorization is not AppAuthorization.DROP]
        name = specs[0].name if specs else "app"
        yield Finding(
            "login",
            "the page sends an Authorization field of its own",
            ViewSupport.WORKS if ready else ViewSupport.NEEDS,
            "" if ready else "without it, the gateway drops the field; `vault` keeps the token from page and host",
            () if ready else ("authorization: pass",),
            "" if ready else f"`backends.{name}` in the policy",
            _where(facts, "authorization"),
        )
    if _has(facts, "password"):
        jars = [one for one in specs if one.cookies == "jar" or one.authorization is not AppAuthorization.DROP]
        name = specs[0].name if specs else "app"
        yield Finding(
            "login",
            "a form with a password",
            ViewSupport.WORKS if jars else ViewSupport.NEEDS,
            "passwords are reported to no model"
            if jars
            else "a session by cookie needs a jar, which the page never sees",
            () if jars else ("cookies: jar",),
            "" if jars else f"`backends.{name}` in the policy",
            _where(facts, "password"),
        )
    if _has(facts, "login elsewhere"):
        yield Finding(
            "login",
            "a login at another site (OAuth in the page)",
            ViewSupport.NEVER,
            "a view cannot leave for a login page and come back: let the gateway log in, with a `credential` of the "
            "type authorization_code at the backend",
            places=_where(facts, "login elsewhere"),
        )


def _tools(facts: AppFacts) -> Iterator[Finding]:
    tools, policy = facts.survey.tools, facts.policy
    policy_tools = [tool for tool in tools if policy is not None and tool in policy.tools]
    missing = [tool for tool in tools if tool not in policy_tools]
    if policy_tools:
        yield Finding("tools", _some(policy_tools), ViewSupport.WORKS)
    if missing:
        yield Finding(
            "tools",
            _some(missing),
            ViewSupport.NEEDS,
            "a tool that the policy does not name is offered to no model",
            tuple(f"{tool}: {{}}" for tool in missing[:LISTED]),
            "`tools` in the policy",
        )


def _permissions(facts: AppFacts) -> Iterator[Finding]:
    if facts.packed is None:
        return
    used = permissions_of(facts.packed.html)
    for name in used:
        allowed = name in facts.permissions
        yield Finding(
            "permissions",
            name,
            ViewSupport.WORKS if allowed else ViewSupport.NEEDS,
            "if the host grants it",
            () if allowed else (f"permissions: [{', '.join(used)}]",),
            "" if allowed else _settings(facts),
        )


def _workers(facts: AppFacts) -> Iterator[Finding]:
    if _has(facts, "worker"):
        yield Finding(
            "workers",
            "new Worker",
            ViewSupport.WORKS,
            "in our own host, from files of the app and blob: URLs",
            places=_where(facts, "worker"),
            hosts=dict.fromkeys((host for host in HOSTS if host != OWN), "workers are blocked"),
        )
    if _has(facts, "webassembly"):
        yield Finding(
            "workers",
            "WebAssembly",
            ViewSupport.WORKS,
            "in our own host, whose content security policy lets pages compile it",
            places=_where(facts, "webassembly"),
            hosts=dict.fromkeys((host for host in HOSTS if host != OWN), "WebAssembly is not compiled"),
        )
    if _has(facts, "service worker", "caches"):
        yield Finding(
            "workers",
            "service workers and their caches",
            ViewSupport.NEVER,
            "they are absent, so that pages which ask first go on without",
            places=_where(facts, "service worker", "caches"),
        )


_OTHERS: Final[Mapping[str, tuple[str, str, ViewSupport, str]]] = {
    "dialogs": (
        "windows",
        "alert, confirm, prompt",
        ViewSupport.WORKS,
        "as dialogs in the page; they do not block scripts",
    ),
    "windows": ("windows", "window.open", ViewSupport.WORKS, "the host opens it; the page gets no window"),
    "synchronous requests": (
        "requests",
        "synchronous XMLHttpRequest",
        ViewSupport.NEVER,
        "it throws: send it asynchronously",
    ),
    "passkeys": ("login", "navigator.credentials", ViewSupport.NEVER, "no host grants it to a view"),
    "notifications": ("windows", "notifications, push messages", ViewSupport.NEVER, "no host grants them to a view"),
    "devices": ("permissions", "devices, payment requests", ViewSupport.NEVER, "no host grants them to a view"),
    "full screen": ("windows", "full screen, pointer lock", ViewSupport.NEVER, "the host decides the size of a view"),
}


def _traits(facts: AppFacts) -> Iterator[Finding]:
    for trait, (topic, what, verdict, detail) in _OTHERS.items():
        if _has(facts, trait):
            yield Finding(topic, what, verdict, detail, places=_where(facts, trait))


def _packing(facts: AppFacts) -> Iterator[Finding]:
    """Yield what packing leaves out, beside files of other sites and workers."""
    packed = facts.packed
    foreign = {url for _, url in packed.foreign} if packed is not None else set()
    for problem in packed.warnings if packed is not None else ():
        is_told = any(url.removeprefix("https:") in problem.message for url in foreign)
        if not is_told and problem.message != WORKER_FILE:
            yield Finding(
                "files", problem.message, ViewSupport.NEEDS, places=(f"{problem.file}:{problem.line}:{problem.column}",)
            )
    for path in facts.survey.unread:
        yield Finding(
            "files", f"{path} was not looked through: it is too large, unreadable or not UTF-8", ViewSupport.WORKS
        )
