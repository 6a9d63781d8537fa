"""The advice about an app as it is configured, or about a running backend, for `doctor`, `init` and the console."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from gateway.apps.advice import ROUTES, Advice, AppFacts, Finding, ViewSupport, advise, examine
from gateway.apps.survey import Survey, survey_texts
from gateway.backends.connect import Connections
from gateway.backends.crawl import SitePage, read_site
from gateway.config import App, BackendApp, SandboxKind, StorageKind
from gateway.model import Json
from gateway.policy import Network, Policy

ANYWHERE = Network(public=True, private=True)
"""The addresses at which a person may name a backend on the command line."""


async def examine_configured(app: App, connections: Connections | None = None) -> Advice:
    """Return the advice about an app of the configuration, under its policy."""
    source = app.source
    if isinstance(source, Path):
        return await asyncio.to_thread(
            examine,
            app.id,
            source,
            start=app.start,
            policy=app.policy,
            permissions=app.permissions,
            kept_storage=app.storage is StorageKind.GATEWAY,
            dedicated=app.sandbox is SandboxKind.DEDICATED,
        )
    if isinstance(source, BackendApp):
        spec = app.policy.backends[source.backend]
        if spec.type != "http":
            what = f"rendered by the backend {spec.name}, an application in this process"
            return Advice(app.id, [Finding("pages", what, ViewSupport.WORKS)])
        url = urljoin(f"{spec.url}/", (source.start or app.start).lstrip("/"))
        return await examine_site(url, app.policy, app.id, spec.network, connections)
    what = f"an app of the upstream {source.upstream}, whose page is read when it is shown"
    return Advice(app.id, [Finding("pages", what, ViewSupport.WORKS)])


async def examine_site(
    url: str,
    policy: Policy | None = None,
    app: str = "app",
    network: Network = ANYWHERE,
    connections: Connections | None = None,
) -> Advice:
    """Return the advice about a running backend, whose first page is at `url`."""
    try:
        page = await read_page(url, network, connections)
    except ValueError as error:
        return Advice(app, (), [str(error)])
    return advise_on_site(page, policy, app)


async def read_page(url: str, network: Network = ANYWHERE, connections: Connections | None = None) -> SitePage:
    """Read the page of a running backend. Raises `ValueError`."""
    if connections is not None:
        return await read_site(connections, network, url)
    async with Connections() as client:
        return await read_site(client, network, url)


def survey_site(page: SitePage) -> Survey:
    """Return what the first page of a site and its scripts name, also by absolute URLs; with the paths of pages."""
    url = urlsplit(page.url)
    html = page.html.replace(f"{url.scheme}://{url.netloc}/", "/")
    page_survey = survey_texts([("(page)", html), *page.texts.items()], start=url.path or "/")
    return replace(page_survey, paths=tuple(dict.fromkeys([*page.pages, *page_survey.paths])))


def advise_on_site(page: SitePage, policy: Policy | None = None, app: str = "app") -> Advice:
    """Return the advice about a site whose first page was read."""
    advice = advise(AppFacts(app, survey_site(page), policy=policy, server_rendered=True))
    how = "rendered by the server" if page.server_rendered else "built in the page by its scripts"
    more = [Finding("pages", f"{how}, beginning at {page.url}", ViewSupport.WORKS)]
    specs = [*policy.backends.values()] if policy is not None else []
    has_jar = any(spec.cookies == "jar" for spec in specs)
    if page.cookies and not has_jar and not any("cookies: jar" in one.lines for one in advice.findings):
        name = specs[0].name if specs else "app"
        what = f"sets the cookies {', '.join(page.cookies)}"
        under = f"`backends.{name}` in the policy"
        more.append(Finding("login", what, ViewSupport.NEEDS, "", ("cookies: jar",), under))
    more += [
        Finding("other sites", f"the script {url}", ViewSupport.NEEDS, "open it by `external`, or serve it yourself")
        for url in page.foreign
        if policy is None or not policy.external.opening(url)
    ]
    posts = [path for path in page.posts if policy is None or not _allows(policy, path)]
    if posts:
        lines = tuple(f'- {{path: "{path}", methods: [POST]}}' for path in posts)
        more.append(Finding("forms", f"post to {', '.join(posts)}", ViewSupport.NEEDS, "", lines, ROUTES))
    more += [Finding("files", missing, ViewSupport.NEEDS) for missing in page.missing]
    findings = [one for one in advice.findings if one.topic != "pages"]
    return replace(advice, findings=[*more, *findings])


def _allows(policy: Policy, path: str) -> bool:
    route = policy.routes.find("POST", path, policy.only_backend or "")
    return route is not None and route.deny is None


def advisor(apps: Mapping[str, App], connections: Connections) -> Callable[[str], Awaitable[Json]]:
    """Return a function from the id of a running app to the advice about it, for one caller at a time."""
    turn = asyncio.Lock()

    async def advice(app: str) -> Json:
        async with turn:
            return (await examine_configured(apps[app], connections)).as_json()

    return advice
