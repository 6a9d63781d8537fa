"""The lists of all upstreams by their public names on `/mcp`; a name is reserved for the upstream that had it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from weakref import ReferenceType, ref

from gateway.config import UpstreamSettings as Spec
from gateway.mcp.upstreams.catalog.listing import offered
from gateway.mcp.upstreams.catalog.lists import Lists
from gateway.mcp.upstreams.catalog.merging import Named, Names, best_name, names_app, original_name
from gateway.mcp.upstreams.catalog.offers import OfferedTools
from gateway.mcp.upstreams.mount import Proxy
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.model import Principal

MOST_MADE = 2000
"""Cached lists by name: two per principal where principals have accounts."""


@dataclass(frozen=True, slots=True)
class _Made:
    """The things by their public names, and the lists that they were made from."""

    made_of: list[tuple[object, list[Message]]]
    named: dict[str, Named]
    offers: list[ReferenceType[OfferedTools]]


class Naming:
    """The names of tools and prompts. `proxies` returns the upstreams, `taken` whether the gateway uses a name."""

    def __init__(self, proxies: Callable[[], Mapping[str, Proxy]], lists: Lists, taken: Callable[[str], bool]) -> None:
        self._proxies = proxies
        self._lists = lists
        self._tools, self._prompts = Names(taken), Names()
        self._made: dict[tuple[str, str], _Made] = {}

    def forget(self, upstreams: Collection[str]) -> None:
        """Forget the names of these upstreams, which were replaced or removed."""
        self._made = {}
        self._tools.forget(upstreams)
        self._prompts.forget(upstreams)

    def tools(self, principal: Principal | None) -> dict[str, Named]:
        """Return the tools by their public names, as listed to `principal`."""
        return self._named("tools/list", self._tools, offered, principal)

    def prompts(self, principal: Principal | None) -> dict[str, Named]:
        """Return the prompts by their public names."""
        return self._named("prompts/list", self._prompts, lambda _, one: isinstance(one.get("name"), str), principal)

    def _named(
        self, method: str, names: Names, is_offered: Callable[[Spec, Message], bool], principal: Principal | None
    ) -> dict[str, Named]:
        """Return the things by their public names, cached while the lists are the same: naming thousands is slow."""
        known, proxies = self._lists.known(method, principal), self._proxies()
        made_of: list[tuple[object, list[Message]]] = [(proxies[name].upstream.spec, known[name]) for name in known]
        personal = any(proxy.upstream.spec.personal for proxy in proxies.values())
        key = (method, principal.id if principal is not None and personal else "")
        made = self._made.get(key)
        if made is not None and len(made.made_of) == len(made_of):
            pairs = zip(made.made_of, made_of, strict=True)
            if all(spec is now and listed is heard for (spec, listed), (now, heard) in pairs):
                return made.named
        specs = {name: proxies[name].upstream.spec for name in known}
        listed = [(specs[name], [one for one in known[name] if is_offered(specs[name], one)]) for name in known]
        named = names.of(listed, self.awaited(method, principal))
        if key in self._made or len(self._made) < MOST_MADE:
            # A cached list of a principal's offer lives no longer than the offer.
            offers = [proxies[name].upstream.offer(principal) for name in known]
            self._made[key] = _Made(made_of, named, [ref(one, lambda _: self._unmake(key)) for one in offers])
        return named

    def awaited(self, method: str, principal: Principal | None) -> Callable[[str, str, str], str | None]:
        """Return a function that finds the earlier upstream, not listed yet, that had a public name or an address.
        Its third argument is the name at the later upstream.
        """
        places = {name: place for place, name in enumerate(self._proxies())}
        silent = self._silent(method, principal)

        def awaited(upstream: str, public: str, name: str) -> str | None:
            before = (name for name in silent if places[name] < places[upstream])
            return next((one for one in before if _had(silent[one], method, principal, public, name)), None)

        return awaited

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
        known = self._lists.known(method, principal)
        return {name: proxy for name, proxy in self._proxies().items() if name not in known}

    def _unmake(self, key: tuple[str, str]) -> None:
        self._made.pop(key, None)


def _had(proxy: Proxy, method: str, principal: Principal | None, public: str, name: str) -> bool:
    """Whether an upstream had a thing with this best public name, or address; `name` is that of another's thing."""
    spec, fingerprints = proxy.upstream.spec, proxy.upstream.offer(principal).fingerprints
    if _of_addresses(method):  # the apps of each upstream have distinct addresses
        return not names_app(public) and fingerprints.had(method, public)
    original = original_name(spec, public)
    # A public name that had to be changed does not reveal the original, but both may use the same one.
    same = best_name(spec, name) == public and fingerprints.had(method, name)
    return same or (original is not None and fingerprints.had(method, original))


def _of_addresses(method: str) -> bool:
    """Whether the keys of a list are addresses, which stay as they are."""
    return method.startswith("resources/")
