"""Stable names and addresses of upstreams that share a mount."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import ReferenceType, ref

from gateway.bounds import Area, Bound
from gateway.config import UpstreamSettings
from gateway.config import UpstreamSettings as Spec
from gateway.mcp.upstreams.catalog.list_cache import Lists, Proxies
from gateway.mcp.upstreams.catalog.listing import (
    APP_SCHEMES,
    MODEL,
    RESOURCE_URI,
    VISIBILITY,
    app_of,
    is_offered,
    ui_of,
    visibility,
)
from gateway.mcp.upstreams.catalog.offers import OfferedTools
from gateway.mcp.upstreams.mount import Proxy
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.model import Principal
from gateway.views.tools import marked_name, model_name

_LEGAL: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""A valid tool name in MCP (2026-07-28, Tools): no two of these look alike."""

MOST_NAMES = 100_000
"""Names remembered per upstream: one that keeps listing new names exhausts only its own share."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "names of upstreams without a prefix",
        f"{MOST_NAMES:,}, a share for each upstream",
        "further ones are not offered",
    ),
)

(_NAMES_KEPT,) = BOUNDS


@dataclass(frozen=True, slots=True)
class NamedThing:
    """A thing of an upstream under its public name on `/mcp`."""

    upstream: str
    original: str
    thing: Message


class Names:
    """Public names of one kind of things. `is_reserved` returns whether the gateway itself uses a name.
    If several upstreams want a name, the first in the configuration has it, also before it answers, if it had the name
    before the gateway started. A name once listed to a client stays with its upstream while that exists, also if an
    earlier one answers later: no call may reach another upstream than intended.
    """

    def __init__(self, is_reserved: Callable[[str], bool] = lambda _: False) -> None:
        self._is_reserved = is_reserved
        self._names: dict[str, tuple[str, str]] = {}
        self._counts = Counter[str]()

    def of(
        self,
        is_offered: Iterable[tuple[UpstreamSettings, Sequence[Message]]],
        earlier_name: Callable[[str, str, str], str | None] = lambda _, __, ___: None,
    ) -> dict[str, NamedThing]:
        """Return the things by their public names.
        `earlier_name` returns the earlier upstream, not listed yet, for which a public name is reserved.
        """
        result: dict[str, NamedThing] = {}
        for spec, things in is_offered:
            for thing in things:
                name = str(thing["name"])
                for public in _names(spec, name):
                    if earlier_name(spec.name, public, name) is None and self._free(public, spec.name, name):
                        break
                else:
                    continue
                if public not in result:
                    result[public] = NamedThing(spec.name, name, thing)
                    self._keep(public, spec.name, name)
        return result

    def forget(self, upstreams: Collection[str]) -> None:
        """Forget the names of these upstreams, which were replaced or removed."""
        self._names = {public: owner for public, owner in self._names.items() if owner[0] not in upstreams}
        self._counts = Counter(owner for owner, _ in self._names.values())

    def _keep(self, public: str, upstream: str, name: str) -> None:
        if public in self._names:
            return
        if self._counts[upstream] >= MOST_NAMES:
            _NAMES_KEPT.report()
            return
        self._names[public] = (upstream, name)
        self._counts[upstream] += 1

    def _free(self, public: str, upstream: str, name: str) -> bool:
        return not self._is_reserved(public) and self._names.get(public, (upstream, name)) == (upstream, name)


def _names(spec: UpstreamSettings, name: str) -> Iterator[str]:
    """Yield the possible public names of a thing, the best first."""
    yield best_name(spec, name)
    public = model_name(spec.name, name)
    yield public
    mark = hashlib.sha256(f"{spec.name}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:6]
    yield f"{public[:57]}_{mark}"


def best_name(spec: UpstreamSettings, name: str) -> str:
    """Return a thing's public name without conflicts: without a prefix its own, if that is valid in MCP."""
    if spec.prefix is not None:
        return model_name(spec.prefix, name)
    return name if _LEGAL.fullmatch(name) else marked_name(name, name)


def original_name(spec: UpstreamSettings, public: str) -> str | None:
    """Return the upstream's own name of a thing from the best public name; None if that is not this upstream's."""
    if spec.prefix is None:
        return public
    before, _, name = public.partition(f"{spec.prefix}_")
    return name if name and not before else None


def public_uri(upstream: str, uri: str) -> str:
    """Return the address of an app on the common mount; other addresses stay."""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{upstream}/{rest}" if names_app(uri) else uri


def names_app(uri: str) -> bool:
    """Return whether this is the address of an app, an upstream's or the gateway's own."""
    return uri.lower().startswith(APP_SCHEMES)


def original_uri(uri: str, upstreams: Iterable[str]) -> tuple[str, str] | None:
    """Return the upstream and its own address of an app; None for any other address."""
    scheme, _, rest = uri.partition("://")
    name, slash, path = rest.partition("/")
    if not names_app(uri) or not slash or name not in upstreams:
        return None
    return name, f"{scheme}://{path}"


def apps_may_stand(specs: Iterable[UpstreamSettings]) -> bool:
    """Return whether the apps of these upstreams may share a mount: a single one, or all of one trust group."""
    groups = [spec.trust for spec in specs]
    return len(groups) < 2 or (None not in groups and len(set(groups)) == 1)


def public_tool(name: str, thing: NamedThing, *, apps: bool) -> Message:
    """Return a tool as offered on `/mcp`; by default it is for the model alone."""
    tool = thing.thing
    meta: Message = _readdress(thing.upstream, {"_meta": tool.get("_meta") or {}})["_meta"]
    ui, uri = dict(ui_of(tool)), app_of(tool)
    ui.pop("resourceUri", None)
    meta.pop(RESOURCE_URI, None)
    flat = meta.pop(VISIBILITY, None)
    if uri is not None and apps:
        ui["resourceUri"] = meta[RESOURCE_URI] = public_uri(thing.upstream, uri)
    seen = visibility(tool, MODEL) if apps else visibility(tool, MODEL) & MODEL
    if ui or uri is not None or flat is not None:
        meta["ui"] = {**ui, "visibility": sorted(seen, reverse=True)}
    return {**tool, "name": name, **({"_meta": meta} if meta else {})}


def public_content(upstream: str, result: Message) -> Message:
    """Return a result with the app addresses of `/mcp`, so that it refers to no other upstream's apps."""
    result_now = _readdress(upstream, result)
    for key in ("content", "contents"):
        if key in result:
            result_now[key] = _blocks(upstream, result[key])
    messages = result.get("messages")
    if isinstance(messages, list):
        result_now["messages"] = [
            {**one, "content": _blocks(upstream, one["content"])} if isinstance(one, dict) and "content" in one else one
            for one in messages
        ]
    return result_now


def bears_apps(tools: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether some tool shows an app."""
    return any(app_of(tool) is not None for tool in tools)


def _blocks(upstream: str, blocks: object) -> object:
    """Return content blocks, or one of them, with public addresses."""
    if isinstance(blocks, list):
        return [_blocks(upstream, block) if isinstance(block, dict) else block for block in blocks]
    if not isinstance(blocks, dict):
        return blocks
    blocks_now = _readdress(upstream, blocks)
    if isinstance(inner := blocks.get("resource"), dict):
        blocks_now["resource"] = _readdress(upstream, inner)
    return blocks_now


def _readdress(upstream: str, thing: Message) -> Message:
    """Return `thing` with its address and those in its `_meta` made public."""
    thing_now, meta = dict(thing), thing.get("_meta")
    if isinstance(uri := thing.get("uri"), str):
        thing_now["uri"] = public_uri(upstream, uri)
    if isinstance(meta, dict):
        thing_now["_meta"] = {key: _addresses(upstream, value) for key, value in meta.items()}
    return thing_now


def _addresses(upstream: str, value: object) -> object:
    """Return a value of `_meta`, or its members, with app addresses made public."""
    if isinstance(value, dict):
        return {key: public_uri(upstream, one) if isinstance(one, str) else one for key, one in value.items()}
    return public_uri(upstream, value) if isinstance(value, str) else value


MOST_MADE = 2000
"""Cached lists by name: two per principal where principals have accounts."""


@dataclass(frozen=True, slots=True)
class _MergedList:
    """The things by their public names, and the lists that they were made from."""

    made_of: list[tuple[object, list[Message]]]
    things: dict[str, NamedThing]
    offers: list[ReferenceType[OfferedTools]]


class Naming:
    """The names of tools and prompts. `is_reserved` returns whether the gateway itself uses a name."""

    def __init__(self, proxies: Proxies, lists: Lists, is_reserved: Callable[[str], bool]) -> None:
        self._proxies = proxies
        self._lists = lists
        self._tools, self._prompts = Names(is_reserved), Names()
        self._merged_lists: dict[tuple[str, ...], _MergedList] = {}

    def forget(self, upstreams: Collection[str]) -> None:
        """Forget the names of these upstreams, which were replaced or removed."""
        self._merged_lists = {}
        self._tools.forget(upstreams)
        self._prompts.forget(upstreams)

    def tools(self, principal: Principal | None) -> dict[str, NamedThing]:
        """Return the tools by their public names, as listed to `principal`."""
        return self._public_names("tools/list", self._tools, is_offered, principal)

    def prompts(self, principal: Principal | None) -> dict[str, NamedThing]:
        """Return the prompts by their public names."""
        return self._public_names(
            "prompts/list", self._prompts, lambda _, one: isinstance(one.get("name"), str), principal
        )

    def _public_names(
        self, method: str, names: Names, is_offered: Callable[[Spec, Message], bool], principal: Principal | None
    ) -> dict[str, NamedThing]:
        """Return the things by their public names, cached while the lists are the same: naming thousands is slow."""
        known, proxies = self._lists.known_lists(method, principal), self._proxies(principal)
        made_of: list[tuple[object, list[Message]]] = [(proxies[name].upstream.spec, known[name]) for name in known]
        personal = any(proxy.upstream.spec.personal for proxy in proxies.values())
        key = (method, principal.id if principal is not None and personal else "", *proxies)
        merged_list = self._merged_lists.get(key)
        if merged_list is not None and len(merged_list.made_of) == len(made_of):
            pairs = zip(merged_list.made_of, made_of, strict=True)
            if all(spec is now and listed is lists for (spec, listed), (now, lists) in pairs):
                return merged_list.things
        specs = {name: proxies[name].upstream.spec for name in known}
        listed = [(specs[name], [one for one in known[name] if is_offered(specs[name], one)]) for name in known]
        things = names.of(listed, self.find_earlier(method, principal))
        if key in self._merged_lists or len(self._merged_lists) < MOST_MADE:
            # A cached list of a principal's offer lives no longer than the offer.
            offers = [proxies[name].upstream.offer(principal) for name in known]
            self._merged_lists[key] = _MergedList(
                made_of, things, [ref(one, lambda _: self._unmake(key)) for one in offers]
            )
        return things

    def find_earlier(self, method: str, principal: Principal | None) -> Callable[[str, str, str], str | None]:
        """Return a function that finds the earlier upstream, not listed yet, that had a public name or an address.
        Its third argument is the name at the later upstream.
        """
        places = {name: place for place, name in enumerate(self._proxies(principal))}
        silent = self._silent(method, principal)

        def earlier_name(upstream: str, public: str, name: str) -> str | None:
            before = (name for name in silent if places[name] < places[upstream])
            return next((one for one in before if _had(silent[one], method, principal, public, name)), None)

        return earlier_name

    def silent(self, method: str, principal: Principal | None, public: str) -> list[str]:
        """Return the upstreams that may have `public`, and have not listed theirs yet.
        That follows from the name's prefix, or from what an upstream had before the gateway started; an address may
        belong to any upstream that never listed any.
        """

        def may_have(proxy: Proxy) -> bool:
            spec, fingerprints = proxy.upstream.spec, proxy.upstream.offer(principal).fingerprints
            if _of_addresses(method):
                return not names_app(public) and fingerprints.may_have(method, public)
            prefixed = spec.prefix is not None and original_name(spec, public) is not None
            return prefixed or _had(proxy, method, principal, public, public)

        return [name for name, proxy in self._silent(method, principal).items() if may_have(proxy)]

    def had_tool(self, principal: Principal | None, name: str) -> list[str]:
        """Return the upstreams that had a tool with the own name `name`, and have not listed theirs yet."""
        silent = self._silent("tools/list", principal).items()
        return [one for one, proxy in silent if proxy.upstream.offer(principal).fingerprints.had("tools/list", name)]

    def _silent(self, method: str, principal: Principal | None) -> dict[str, Proxy]:
        known = self._lists.known_lists(method, principal)
        return {name: proxy for name, proxy in self._proxies(principal).items() if name not in known}

    def _unmake(self, key: tuple[str, ...]) -> None:
        self._merged_lists.pop(key, None)


def _had(proxy: Proxy, method: str, principal: Principal | None, public: str, name: str) -> bool:
    """Return whether an upstream had a thing with this best public name, or address; `name` is another's thing."""
    spec, fingerprints = proxy.upstream.spec, proxy.upstream.offer(principal).fingerprints
    if _of_addresses(method):  # the apps of each upstream have distinct addresses
        return not names_app(public) and fingerprints.had(method, public)
    original = original_name(spec, public)
    # A public name that had to be changed does not reveal the original, but both may use the same one.
    same = best_name(spec, name) == public and fingerprints.had(method, name)
    return same or (original is not None and fingerprints.had(method, original))


def _of_addresses(method: str) -> bool:
    """Return whether the keys of a list are addresses, which stay as they are."""
    return method.startswith("resources/")
