"""The upstreams on `/mcp`, side by side with each other and with the apps; one that is slow delays none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp_types.methods import validate_client_request

from gateway.errors import Refusal
from gateway.mcp.asgi import ending_of
from gateway.mcp.upstreams import feed, merging
from gateway.mcp.upstreams.client import Context, UpstreamClient, client_of
from gateway.mcp.upstreams.conversation import Message, UpstreamLost
from gateway.mcp.upstreams.feed import Follower
from gateway.mcp.upstreams.fingerprints import MAX_TOOLS
from gateway.mcp.upstreams.listing import described, offered, visibility
from gateway.mcp.upstreams.merging import Named
from gateway.mcp.upstreams.proxy import Proxy

FIRST = 3.0
"""Seconds that a list waits for an upstream which was never heard; it is left out until it answers."""

LATER = 0.25
"""Seconds that it waits for one whose last list is known."""

KEYS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
NEEDS = {
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "prompts/list": "prompts",
}


@dataclass(eq=False, slots=True)
class _Lists:
    """What one upstream was heard to list to one kind of client, by method, and what is being asked."""

    known: dict[str, list[Message]] = field(default_factory=dict)
    asking: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)


class Merged:
    """Stands before the gateway's own tools and resources on `/mcp`. `proxies` are the upstreams as they are now."""

    follows = False

    def __init__(self, proxies: Callable[[], Mapping[str, Proxy]]) -> None:
        self._proxies = proxies
        self._lists: dict[tuple[str, str], _Lists] = {}
        self._watched: set[int] = set()
        self.changed: Callable[[], None] = lambda: None
        self.taken: Callable[[str], bool] = lambda _: False
        self._handlers: dict[str, Callable[[UpstreamClient, Message], Awaitable[Message | None]]] = {
            "tools/call": self._call_tool,
            "resources/read": self._read_resource,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
        }

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer what is of an upstream, add to what lists them, and leave the rest."""
        proxies = self._proxies()
        if not proxies or ctx.request_id is None:
            return await call_next(ctx)
        if ctx.method in ("initialize", "server/discover"):
            return _introduced(await call_next(ctx))
        if ctx.method not in KEYS and ctx.method not in self._handlers:
            return await call_next(ctx)
        client = client_of(ctx, {})
        params = dict(ctx.params or {})
        with anyio.CancelScope() as scope, ending_of(ctx.request).calling(scope.cancel):
            try:
                if ctx.method in KEYS:
                    return await self._list(ctx, client, await self._own(ctx, call_next))
                validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
                answer = await self._handlers[ctx.method](client, params)
                return answer if answer is not None else await call_next(ctx)
            except Refusal as refusal:
                raise MCPError(types.INTERNAL_ERROR, refusal.detail, {"reason": refusal.reason.value}) from refusal
            except UpstreamLost as lost:
                raise MCPError(types.INTERNAL_ERROR, str(lost)) from lost
        raise MCPError(REQUEST_CANCELLED, "The connection of this call is gone.")

    def forget(self, names: Collection[str]) -> None:
        """These upstreams are others now, or gone: what they listed is void."""
        self._lists = {key: lists for key, lists in self._lists.items() if key[0] not in names}

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of an upstream's tool, as far as it was listed."""
        named = self._tools(None).get(name)
        return named.thing["inputSchema"] if named is not None else None

    def fast(self, hosts: Collection[str], origins: Collection[str], silence: float) -> None:
        """None: what is quick on the mount of all is the way to the apps."""

    def drain(self) -> None:
        """Nothing of its own stays open."""

    async def _own(self, ctx: Context, call_next: CallNext) -> Message:
        """The gateway's own list; of prompts it has none."""
        if ctx.method == "prompts/list":
            made: Message = {"prompts": []}
            modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            return made | modern if client_of(ctx, {}).modern else made
        found = await call_next(ctx)
        return found if isinstance(found, dict) else {}

    async def _list(self, ctx: Context, client: UpstreamClient, own: Message) -> Message:
        method, key = ctx.method, KEYS[ctx.method]
        mine = own.get(key)
        merged = list(mine) if isinstance(mine, list) else []
        await self._refresh(client, "tools/list")
        if method == "tools/list":
            return {**own, key: merged + self._shown_tools(client)}
        await self._refresh(client, method)
        if method == "prompts/list":
            prompts = self._prompts(client).items()
            return {**own, key: [{**one.thing, "name": name} for name, one in prompts]}
        apps = self._apps(client)
        seen = {str(one.get("uri", one.get("uriTemplate"))) for one in merged}
        for name, things in self._known(method, client).items():
            for thing in things:
                address = "uri" if "uri" in thing else "uriTemplate"
                uri = str(thing.get(address))
                public = merging.public_uri(name, uri)
                if public in seen or (public != uri and not apps):
                    continue
                seen.add(public)
                merged.append({**thing, address: public})
        return {**own, key: merged}

    def _shown_tools(self, client: UpstreamClient) -> list[Message]:
        apps = self._apps(client)
        proxies = self._proxies()
        shown: list[Message] = []
        for name, named in self._tools(client).items():
            tool = merging.public_tool(name, named, apps=apps)
            seen = visibility(tool, frozenset(("model",)))
            if "model" in seen or (client.is_app and "app" in seen):
                shown.append(described(proxies[named.upstream].upstream.spec, named.thing) | _without_name(tool))
        return shown

    def _tools(self, client: UpstreamClient | None) -> dict[str, Named]:
        """The tools by their public names: those that `client` was told of, or any client."""
        listed = [
            (self._proxies()[name].upstream.spec, [t for t in tools if offered(self._proxies()[name].upstream.spec, t)])
            for name, tools in self._known("tools/list", client).items()
        ]
        return merging.public_names(listed, self.taken)

    def _apps(self, client: UpstreamClient) -> bool:
        """Whether apps of upstreams may stand here."""
        known = self._known("tools/list", client)
        bearing = [self._proxies()[name].upstream.spec for name, tools in known.items() if merging.bears_apps(tools)]
        return merging.apps_may_stand(bearing)

    def _known(self, method: str, client: UpstreamClient | None) -> dict[str, list[Message]]:
        """What each upstream lists, in the order of the configuration."""
        found: dict[str, list[Message]] = {}
        for name, proxy in self._proxies().items():
            owner = _owner(proxy, client)
            for (upstream, known_to), lists in self._lists.items():
                if upstream == name and (client is None or known_to == owner):
                    found.setdefault(name, []).extend(lists.known.get(method, ()))
        return found

    def _prompts(self, client: UpstreamClient) -> dict[str, Named]:
        listed = [
            (self._proxies()[name].upstream.spec, [prompt for prompt in prompts if isinstance(prompt.get("name"), str)])
            for name, prompts in self._known("prompts/list", client).items()
        ]
        return merging.public_names(listed, lambda _: False)

    async def _refresh(self, client: UpstreamClient, method: str) -> None:
        """Ask every upstream for its list, side by side, and wait only as long as none delays the others."""
        waiting: set[asyncio.Task[None]] = set()
        patience = LATER
        for name, proxy in self._proxies().items():
            lists = self._lists.setdefault(
                (name, client.principal.id if proxy.upstream.spec.personal else ""), _Lists()
            )
            task = lists.asking.get(method)
            if task is None or task.done():
                task = lists.asking[method] = proxy.upstream.spawn(self._ask(proxy, client, method, lists))
            if method not in lists.known and method not in lists.late:
                lists.late.add(method)
                patience = FIRST
            waiting.add(task)
        if waiting:
            await asyncio.wait(waiting, timeout=patience)

    async def _ask(self, proxy: Proxy, client: UpstreamClient, method: str, lists: _Lists) -> None:
        alone = UpstreamClient(client.principal, "list", client.version, client.capabilities, client.info)
        _, session = await proxy.upstream.session(alone)
        await self._watch(proxy, alone)
        if (need := NEEDS.get(method)) is not None and not session.terms.can(need):
            lists.known[method] = []
            return
        before = lists.known.get(method)
        try:
            if method == "tools/list":
                now = await proxy.all_tools(alone) if session.terms.can("tools") else []
            else:
                now = await proxy.pages(alone, method, KEYS[method])
        except MCPError:
            now = []  # it has none
        lists.known[method] = now
        if method == "tools/list":
            names = {str(tool["name"]) for tool in now}
            for gone in proxy.upstream.tools.keys() - names if len(now) < MAX_TOOLS else ():
                del proxy.upstream.tools[gone]
            if method in lists.late and before != now:
                self.changed()

    async def _watch(self, proxy: Proxy, client: UpstreamClient) -> None:
        """Hear of its changes, from now on."""
        joined, session = await proxy.upstream.session(client)
        if id(joined) in self._watched:
            return
        self._watched.add(id(joined))

        def tell(method: str, _: Message) -> None:
            if method == feed.KINDS["toolsListChanged"]:
                self.changed()

        joined.feed.add(Follower(tell))
        await joined.feed.listen(session)

    async def _call_tool(self, client: UpstreamClient, params: Message) -> Message | None:
        public = str(params.get("name"))
        named = self._tools(client).get(public)
        if named is None and not any(self._known("tools/list", client).values()):
            await self._refresh(client, "tools/list")
            named = self._tools(client).get(public)
        if named is None:
            return None
        if not self._apps(client) and "model" not in visibility(named.thing, frozenset(("model",))):
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {public[:128]}")
        proxy = self._proxies()[named.upstream]
        result = await proxy.call_tool(client, {**params, "name": named.original})
        return merging.public_content(named.upstream, result)

    async def _read_resource(self, client: UpstreamClient, params: Message) -> Message | None:
        uri = str(params.get("uri"))
        found = merging.original_uri(uri, self._proxies())
        if found is None and merging.names_app(uri):
            return None  # an app of the gateway's own: no upstream speaks for it, whatever it lists
        if found is None:
            await self._refresh(client, "resources/list")
            owner = next(
                (name for name, known in self._known("resources/list", client).items() if _lists(known, uri)), None
            )
            if owner is None:
                await self._refresh(client, "resources/templates/list")
                known = self._known("resources/templates/list", client).items()
                owner = next((name for name, templates in known if _covers(templates, uri)), None)
            if owner is None:
                return None
            found = owner, uri
        elif not self._apps(client):
            raise MCPError(types.INVALID_PARAMS, f"Unknown resource: {uri[:200]}", {"uri": uri[:200]})
        name, original = found
        result = await self._proxies()[name].read_resource(client, {**params, "uri": original})
        return merging.public_content(name, result)

    async def _get_prompt(self, client: UpstreamClient, params: Message) -> Message | None:
        found = await self._prompt(client, str(params.get("name")))
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {str(params.get('name'))[:128]}")
        proxy = self._proxies()[found.upstream]
        return await proxy.relay.forward(client, "prompts/get", {**params, "name": found.original})

    async def _complete(self, client: UpstreamClient, params: Message) -> Message | None:
        ref = params.get("ref")
        name, uri = (ref.get("name"), ref.get("uri")) if isinstance(ref, dict) else (None, None)
        if isinstance(name, str) and isinstance(ref, dict):
            found = await self._prompt(client, name)
            if found is not None:
                out = {**params, "ref": {**ref, "name": found.original}}
                return await self._proxies()[found.upstream].relay.forward(client, "completion/complete", out)
        if isinstance(uri, str):
            await self._refresh(client, "resources/templates/list")
            for owner, templates in self._known("resources/templates/list", client).items():
                if any(template.get("uriTemplate") == uri for template in templates):
                    return await self._proxies()[owner].relay.forward(client, "completion/complete", params)
        raise MCPError(types.INVALID_PARAMS, "There is no such prompt or template.")

    async def _prompt(self, client: UpstreamClient, public: str) -> Named | None:
        await self._refresh(client, "prompts/list")
        return self._prompts(client).get(public)


def _owner(proxy: Proxy, client: UpstreamClient | None) -> str:
    return client.principal.id if client is not None and proxy.upstream.spec.personal else ""


def _introduced(result: HandlerResult) -> HandlerResult:
    """The gateway has what its upstreams have."""
    if not isinstance(result, dict):
        return result
    capabilities = result.get("capabilities")
    said = capabilities if isinstance(capabilities, dict) else {}
    return {**result, "capabilities": {"prompts": {}, "resources": {}, "completions": {}, **said}}


def _lists(known: list[Message], uri: str) -> bool:
    return any(one.get("uri") == uri for one in known)


def _covers(templates: list[Message], uri: str) -> bool:
    """Whether a template may mean `uri`, by what stands before its first variable."""
    starts = (str(template.get("uriTemplate", "")).partition("{")[0] for template in templates)
    return any(start and uri.startswith(start) for start in starts)


def _without_name(tool: Message) -> Message:
    return {key: value for key, value in tool.items() if key in ("name", "_meta")}
