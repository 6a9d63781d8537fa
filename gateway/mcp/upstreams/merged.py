"""The upstreams on `/mcp`, beside each other and the apps; a slow one delays none of the others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError
from mcp_types.methods import validate_client_request

from gateway.callers.entitlements import Admits, admit_all
from gateway.errors import Refusal
from gateway.eventloop.fair_share import by_turns
from gateway.mcp import results
from gateway.mcp.asgi import current_principal, ending_of
from gateway.mcp.server import McpMount as Mount
from gateway.mcp.upstreams.calls.client import Context, UpstreamClient, client_of
from gateway.mcp.upstreams.calls.upstream_calls import complete, refusal_result
from gateway.mcp.upstreams.catalog import merging
from gateway.mcp.upstreams.catalog.list_cache import Lists
from gateway.mcp.upstreams.catalog.listing import CONNECT, KEYS, describe, is_for, visibility
from gateway.mcp.upstreams.catalog.merging import NamedThing, Naming
from gateway.mcp.upstreams.catalog.shapes import readable
from gateway.mcp.upstreams.changes.merged_changes import MergedChanges
from gateway.mcp.upstreams.mount import Proxy, as_error, said_trace
from gateway.mcp.upstreams.transport.conversation import Message, UpstreamLost
from gateway.model import Principal
from gateway.traces import continue_trace

T = TypeVar("T")


class MergedUpstreams:
    """Middleware before the gateway's own tools and resources on `/mcp`. `proxies` returns the current upstreams.

    An upstream does not exist for callers that it does not admit, by `admits`.
    """

    follows = False

    def __init__(self, proxies: Callable[[], Mapping[str, Proxy]], admits: Admits = admit_all) -> None:
        self._proxies = proxies
        self._admits = admits
        self._mount: Mount | None = None
        self._lists = Lists(self._open_to, self._announce)
        self._names = Naming(self._open_to, self._lists, self._is_own_tool)
        self._gathering = MergedChanges(self._open_to, self._owner)
        self._levels: dict[str, str] = {}
        self._handlers: dict[str, Callable[[UpstreamClient, Message], Awaitable[Message | None]]] = {
            "resources/read": self._read_resource,
            "resources/subscribe": self._gathering.subscribe,
            "resources/unsubscribe": self._gathering.unsubscribe,
            "subscriptions/listen": self._gathering.listen,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "logging/setLevel": self._set_level,
        }

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer requests for upstreams, extend lists with their entries, and pass on the rest."""
        if not self._proxies():
            return await call_next(ctx)
        match ctx.method:
            case "initialize" | "server/discover":
                return _introduce(await call_next(ctx))
            case "notifications/initialized":
                self._gathering.follow(client_of(ctx, self._levels))
                await call_next(ctx)
                return None
            case "notifications/roots/list_changed":
                client = client_of(ctx, self._levels)
                for proxy in list(self._open_to(client.principal).values()):
                    await proxy.tell_roots(client)
                return None
            case "tools/call":
                return await self._answer(ctx, call_next)
            case method if ctx.request_id is not None and (method in KEYS or method in self._handlers):
                return await self._answer(ctx, call_next)
            case _:
                return await call_next(ctx)

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        client = client_of(ctx, self._levels)
        params = dict(ctx.params or {})
        with (
            anyio.CancelScope() as scope,
            ending_of(ctx.request).calling(scope.cancel),
            continue_trace(said_trace(ctx)),
        ):
            try:
                if ctx.method in KEYS:
                    return await self._list(ctx, client, await self._own(ctx, call_next))
                try:
                    validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
                except KeyError:
                    raise MCPError(types.METHOD_NOT_FOUND, "Method not found", ctx.method) from None
                if ctx.method == "tools/call":
                    answer = await self._call_tool(client, params, ctx)
                else:
                    answer = await self._handlers[ctx.method](client, params)
                return answer if answer is not None else await call_next(ctx)
            except Refusal as refusal:
                raise as_error(refusal) from refusal
            except UpstreamLost as lost:
                raise MCPError(types.INTERNAL_ERROR, str(lost)) from lost
        raise MCPError(REQUEST_CANCELLED, "The connection of this call is gone.")

    def _open_to(self, principal: Principal | None) -> Mapping[str, Proxy]:
        """Return the upstreams that a caller may use; all for the gateway itself."""
        everything = self._proxies()
        if principal is None:
            return everything
        return {name: proxy for name, proxy in everything.items() if self._admits(principal, name)}

    def stand_before(self, mount: Mount) -> None:
        """Attach to the mount that this middleware belongs to."""
        self._mount = mount
        self._gathering.own = mount.on_tools

    def access_changed(self, principal: Principal | None) -> None:
        """Follow the upstreams that clients of `principal`, or of all, may use now."""
        self._gathering.renew(principal)

    def forget(self, names: Collection[str]) -> None:
        """Forget the lists of these upstreams, which were replaced or removed, and publish the new offer."""
        self._names.forget(names)
        self._gathering.renew()

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of an upstream's tool, if it was listed to the current caller."""
        thing = self._names.tools(current_principal()).get(name)
        return thing.thing["inputSchema"] if thing is not None else None

    def fast(self, hosts: Collection[str], origins: Collection[str], silence: float) -> None:
        """Return None: the fast path of the common mount serves the apps."""

    def drain(self) -> None:
        """End the long-lived streams."""
        self._gathering.streams.drain()

    def _announce(self, method: str) -> None:
        if method != "tools/list":
            self._gathering.notify(method)
        elif self._mount is not None:
            self._mount.tools_changed()

    def _is_own_tool(self, name: str) -> bool:
        return self._mount is not None and self._mount.catalog.owns(name)

    def forget_session(self, session: str) -> None:
        """Forget a session of the handshake protocols that has ended."""
        self._levels.pop(session, None)
        self._gathering.forget_session(session)
        for proxy in self._proxies().values():
            proxy.forget_session(session)

    async def _set_level(self, client: UpstreamClient, params: Message) -> Message:
        """Store a session's log level; each upstream receives it at its next call."""
        self._levels[client.who] = str(params["level"])
        return {}

    async def _own(self, ctx: Context, call_next: CallNext) -> Message:
        """Return the gateway's own list; it has no prompts."""
        if ctx.method == "prompts/list":
            results.no_further_page((ctx.params or {}).get("cursor"))
            result: Message = {"prompts": []}
            modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
            return result | modern if client_of(ctx, {}).modern else result
        listing = await call_next(ctx)
        return listing if isinstance(listing, dict) else {}

    async def _list(self, ctx: Context, client: UpstreamClient, own: Message) -> Message:
        method, key = ctx.method, KEYS[ctx.method]
        mine = own.get(key)
        tools = list(mine) if isinstance(mine, list) else []
        await self._lists.refresh(client, "tools/list")
        if method == "tools/list":
            return {**own, key: tools + await self._shown_tools(client)}
        await self._lists.refresh(client, method)
        if method == "prompts/list":
            prompts = self._names.prompts(client.principal).items()
            return {**own, key: [{**one.thing, "name": name} for name, one in prompts]}
        apps = self._apps(client)
        earlier_name = self._names.find_earlier(method, client.principal)
        seen = {str(one.get("uri", one.get("uriTemplate"))) for one in tools}
        for name, things in self._lists.known_lists(method, client.principal).items():
            async for thing in by_turns(things):
                address = "uri" if "uri" in thing else "uriTemplate"
                uri = str(thing.get(address))
                public = merging.public_uri(name, uri)
                if public in seen or (public != uri and not apps) or earlier_name(name, uri, uri) is not None:
                    continue
                seen.add(public)
                tools.append({**thing, address: public})
        return {**own, key: tools}

    async def _shown_tools(self, client: UpstreamClient) -> list[Message]:
        apps = self._apps(client)
        proxies = self._open_to(client.principal)
        tools_shown: list[Message] = []
        async for name, thing in by_turns(self._names.tools(client.principal).items()):
            tool = merging.public_tool(name, thing, apps=apps)
            seen = visibility(tool, frozenset(("model",)))
            if not is_for(proxies[thing.upstream].upstream.spec, thing.original, client.principal):
                continue
            if "model" in seen or (client.is_app and "app" in seen):
                tools_shown.append(describe(proxies[thing.upstream].upstream.spec, thing.thing) | _without_name(tool))
        return await readable("tools/list", tools_shown, client.version)

    def _apps(self, client: UpstreamClient) -> bool:
        """Return whether apps of upstreams may be offered here."""
        known = self._lists.known_lists("tools/list", client.principal)
        proxies = self._open_to(client.principal)
        bearing = [proxies[name].upstream.spec for name, tools in known.items() if merging.bears_apps(tools)]
        return merging.apps_may_stand(bearing)

    async def _call_tool(self, client: UpstreamClient, params: Message, ctx: Context) -> Message | None:
        public = str(params.get("name"))
        if self._is_own_tool(public):
            return None
        known_lists = self._lists.known_lists("tools/list", client.principal)
        if public not in self._names.tools(client.principal) and len(known_lists) < len(
            self._open_to(client.principal)
        ):
            await self._lists.refresh(client, "tools/list")
        try:
            thing = await self._wait_for_name("tools/list", client, public, self._names.tools)
            if thing is None and client.is_app:
                thing = await self._of_page(client, public)
        except Refusal as refusal:
            return complete(client, refusal_result(refusal))
        if thing is None:
            return None
        if not self._apps(client) and "model" not in visibility(thing.thing, frozenset(("model",))):
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {public[:128]}")
        proxy = self._proxies()[thing.upstream]
        with suppress(MCPError):  # an upstream may not support logging
            await proxy.keep_level(client)
        result = await proxy.call_tool(client, {**params, "name": thing.original}, ctx)
        if thing.original == CONNECT:
            await self._lists.refresh(client, "tools/list")  # followers are notified of the upstream's tools
        return merging.public_content(thing.upstream, result)

    async def _of_page(self, client: UpstreamClient, name: str) -> NamedThing | None:
        """Return the tool that a page calls by `name`, the upstream's own name of it, which hosts pass on.
        None if no upstream has it for apps. Raises `Refusal` if an upstream that may have it does not answer, and
        `MCPError` if several have it.
        """
        had = self._names.had_tool(client.principal, name)
        await self._lists.hear(client, ("tools/list",), had, lambda: False)
        tools = self._names.tools(client.principal).values() if self._apps(client) else ()
        matches = [one for one in tools if one.original == name]
        if not matches:
            return None
        for_apps = [one for one in matches if "app" in visibility(one.thing, frozenset(("model",)))]
        if len(for_apps) != 1:
            those = ", ".join(one.upstream for one in for_apps or matches)
            why = "several upstreams have it for apps" if for_apps else "its upstream does not say that it is for apps"
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name[:128]}: {why} ({those}); take /mcp/<upstream>")
        return for_apps[0]

    async def _wait_for_name(
        self, method: str, client: UpstreamClient, public: str, known: Callable[[Principal], Mapping[str, T]]
    ) -> T | None:
        """Return the thing named `public` among those `known`, after waiting for upstreams that may have it and have
        not listed theirs yet, as they may be starting. Raises `Refusal` if one does not answer.
        """

        def find() -> T | None:
            return known(client.principal).get(public)

        if find() is None:
            await self._lists.remember(client.principal, method)
        silent = self._names.silent(method, client.principal, public)
        await self._lists.hear(client, (method,), silent, lambda: find() is not None)
        return find()

    async def _read_resource(self, client: UpstreamClient, params: Message) -> Message | None:
        owner = await self._owner(client, str(params.get("uri")))
        if owner is None:
            return None
        name, original = owner
        result = await self._proxies()[name].read_resource(client, {**params, "uri": original})
        return merging.public_content(name, result)

    async def _owner(self, client: UpstreamClient, uri: str) -> tuple[str, str] | None:
        """Return the upstream of a resource, and its own address of it; None if no upstream has it."""
        owners = merging.original_uri(uri, self._open_to(client.principal))
        if owners is not None:
            await self._request_list(client, "tools/list")
            if not self._apps(client):
                raise MCPError(types.INVALID_PARAMS, f"Unknown resource: {uri[:200]}", {"uri": uri[:200]})
            return owners
        if merging.names_app(uri):
            return None  # an app of the gateway itself: no upstream answers for it, whatever it lists
        owner, holder = self._lister(client, uri)
        if owner is None:
            for method in _MEANS:
                await self._lists.refresh(client, method)
            await self._lists.remember(client.principal, *_MEANS)
            owner, holder = self._lister(client, uri)
        while owner is None and (silent := self._silent(client, uri, holder)):
            await self._lists.hear(client, _MEANS, silent, lambda: self._lister(client, uri)[0] is not None)
            owner, holder = self._lister(client, uri)
        return (owner, uri) if owner is not None else None

    def _silent(self, client: UpstreamClient, uri: str, holder: str | None) -> list[str]:
        """Return the upstreams to wait for to find an address: its `holder`, or any possible one."""
        if holder is not None:
            return [holder]
        return list(dict.fromkeys(one for means in _MEANS for one in self._names.silent(means, client.principal, uri)))

    def _lister(self, client: UpstreamClient, uri: str) -> tuple[str | None, str | None]:
        """Return the upstream that lists an address, or else the one that the address is reserved for."""
        holder: str | None = None
        for method, means in _MEANS.items():
            earlier_name = self._names.find_earlier(method, client.principal)
            for name, template in self._lists.known_lists(method, client.principal).items():
                if (address := means(template, uri)) is not None:
                    holder = earlier_name(name, address, address)
                    if holder is None:
                        return name, None
        return None, holder

    async def _request_list(self, client: UpstreamClient, method: str) -> None:
        """Request a list that no upstream has sent yet."""
        if not self._lists.known_lists(method, client.principal):
            await self._lists.refresh(client, method)

    async def _get_prompt(self, client: UpstreamClient, params: Message) -> Message | None:
        prompt = await self._prompt(client, str(params.get("name")))
        if prompt is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {str(params.get('name'))[:128]}")
        proxy = self._proxies()[prompt.upstream]
        result = await proxy.get_prompt(client, {**params, "name": prompt.original})
        return merging.public_content(prompt.upstream, result)

    async def _complete(self, client: UpstreamClient, params: Message) -> Message | None:
        ref = params.get("ref")
        name, uri = (ref.get("name"), ref.get("uri")) if isinstance(ref, dict) else (None, None)
        if isinstance(name, str) and isinstance(ref, dict):
            prompt = await self._prompt(client, name)
            if prompt is not None:
                out = {**params, "ref": {**ref, "name": prompt.original}}
                return await self._proxies()[prompt.upstream].relay.forward(client, "completion/complete", out)
        if isinstance(uri, str):
            await self._lists.refresh(client, "resources/templates/list")
            owner = await self._wait_for_name("resources/templates/list", client, uri, self._templates)
            if owner is not None:
                return await self._proxies()[owner].relay.forward(client, "completion/complete", params)
        raise MCPError(types.INVALID_PARAMS, "There is no such prompt or template.")

    def _templates(self, principal: Principal) -> dict[str, str]:
        """Return the upstreams by the templates that they list; the first that lists one has it."""
        known = self._lists.known_lists("resources/templates/list", principal)
        templates = ((str(one.get("uriTemplate")), owner) for owner, things in known.items() for one in things)
        return dict(reversed(list(templates)))

    async def _prompt(self, client: UpstreamClient, public: str) -> NamedThing | None:
        if public not in self._names.prompts(client.principal):
            await self._lists.refresh(client, "prompts/list")
        return await self._wait_for_name("prompts/list", client, public, self._names.prompts)


def _introduce(result: HandlerResult) -> HandlerResult:
    """Declare the capabilities of upstreams as the gateway's."""
    if not isinstance(result, dict):
        return result
    capabilities = result.get("capabilities")
    declared_capabilities = capabilities if isinstance(capabilities, dict) else {}
    lists, resources = {"listChanged": True}, {"listChanged": True, "subscribe": True}
    return {
        **result,
        "capabilities": {
            **declared_capabilities,
            "prompts": lists,
            "resources": resources,
            "completions": {},
            "logging": {},
        },
    }


def _find_uri(things: list[Message], uri: str) -> str | None:
    """Return `uri` if it is among these resources, else None."""
    return uri if any(one.get("uri") == uri for one in things) else None


def _template_of(templates: list[Message], uri: str) -> str | None:
    """Return the template that may match `uri`, judged by the text before its first variable."""
    addresses = (str(template.get("uriTemplate", "")) for template in templates)
    return next((one for one in addresses if (start := one.partition("{")[0]) and uri.startswith(start)), None)


_MEANS: Mapping[str, Callable[[list[Message], str], str | None]] = {
    "resources/list": _find_uri,
    "resources/templates/list": _template_of,
}
"""The lists that contain addresses, and the function that finds an address in each."""


def _without_name(tool: Message) -> Message:
    return {key: value for key, value in tool.items() if key in ("name", "_meta")}
