"""What all upstreams list, by the names that clients of `/mcp` know; a name is kept for the upstream that had it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from weakref import ReferenceType, ref

from gateway.config import Upstream as Spec
from gateway.mcp.upstreams.conversation import Message
from gateway.mcp.upstreams.listing import offered
from gateway.mcp.upstreams.lists import Lists
from gateway.mcp.upstreams.merging import Named, Names, best_name, names_app, original_name
from gateway.mcp.upstreams.offers import Offer
from gateway.mcp.upstreams.proxy import Proxy
from gateway.model import Principal

MOST_MADE = 2000
"""Lists of things by their names that are kept: two of each principal where they have accounts of their own."""


@dataclass(frozen=True, slots=True)
class _Made:
    """The things by their public names, as they were made of these lists."""

    made_of: list[tuple[object, list[Message]]]
    named: dict[str, Named]
    offers: list[ReferenceType[Offer]]


class Naming:
    """The names of tools and prompts. `proxies` are the upstreams as they are now, `taken` the gateway's own tools."""

    def __init__(self, proxies: Callable[[], Mapping[str, Proxy]], lists: Lists, taken: Callable[[str], bool]) -> None:
        self._proxies = proxies
        self._lists = lists
        self._tools, self._prompts = Names(taken), Names()
        self._made: dict[tuple[str, str], _Made] = {}

    def forget(self, upstreams: Collection[str]) -> None:
        """These are others now, or gone."""
        self._made = {}
        self._tools.forget(upstreams)
        self._prompts.forget(upstreams)

    def tools(self, principal: Principal | None) -> dict[str, Named]:
        """The tools by their public names, as `principal` was told of them."""
        return self._named("tools/list", self._tools, offered, principal)

    def prompts(self, principal: Principal | None) -> dict[str, Named]:
        """The prompts by their public names."""
        return self._named("prompts/list", self._prompts, lambda _, one: isinstance(one.get("name"), str), principal)

    def _named(
        self, method: str, names: Names, is_offered: Callable[[Spec, Message], bool], principal: Principal | None
    ) -> dict[str, Named]:
        """The things by their public names: of thousands that takes a while, and what was made of the same is kept."""
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
            # What was offered to a principal is kept no longer than the offer.
            offers = [proxies[name].upstream.offer(principal) for name in known]
            self._made[key] = _Made(made_of, named, [ref(one, lambda _: self._unmake(key)) for one in offers])
        return named

    def awaited(self, method: str, principal: Principal | None) -> Callable[[str, str, str], str | None]:
        """The upstream before another, of which nothing is known yet, that had a thing of a public name, or an address:
        the third is what the other one calls it.
        """
        places = {name: place for place, name in enumerate(self._proxies())}
        silent = self._silent(method, principal)

        def awaited(upstream: str, public: str, name: str) -> str | None:
            before = (name for name in silent if places[name] < places[upstream])
            return next((one for one in before if _had(silent[one], method, principal, public, name)), None)

        return awaited

    def silent(self, method: str, principal: Principal | None, public: str) -> list[str]:
        """The upstreams that may have what is called `public`, and have not said yet what they have.

        That is known by the name's prefix, or because an upstream had it before the gateway was started; an address
        may be one of any upstream that never said what it has.
        """

        def may_have(proxy: Proxy) -> bool:
            spec, fingerprints = proxy.upstream.spec, proxy.upstream.offer(principal).fingerprints
            if _of_addresses(method):
                return not names_app(public) and fingerprints.may_have(method, public)
            prefixed = spec.prefix is not None and original_name(spec, public) is not None
            return prefixed or _had(proxy, method, principal, public, public)

        return [name for name, proxy in self._silent(method, principal).items() if may_have(proxy)]

    def had_tool(self, principal: Principal | None, name: str) -> list[str]:
        """The upstreams that had a tool which they call `name`, and have not said yet what they have."""
        silent = self._silent("tools/list", principal).items()
        return [one for one, proxy in silent if proxy.upstream.offer(principal).fingerprints.had("tools/list", name)]

    def _silent(self, method: str, principal: Principal | None) -> dict[str, Proxy]:
        known = self._lists.known(method, principal)
        return {name: proxy for name, proxy in self._proxies().items() if name not in known}

    def _unmake(self, key: tuple[str, str]) -> None:
        self._made.pop(key, None)


def _had(proxy: Proxy, method: str, principal: Principal | None, public: str, name: str) -> bool:
    """Whether an upstream had a thing whose best public name, or address, this is; another calls its own `name`."""
    spec, fingerprints = proxy.upstream.spec, proxy.upstream.offer(principal).fingerprints
    if _of_addresses(method):  # the apps of each upstream have addresses of their own
        return not names_app(public) and fingerprints.had(method, public)
    original = original_name(spec, public)
    # A public name that had to be changed does not say what it was, but both may call it the same.
    same = best_name(spec, name) == public and fingerprints.had(method, name)
    return same or (original is not None and fingerprints.had(method, original))


def _of_addresses(method: str) -> bool:
    """Whether what a list names are addresses, which stay as they are."""
    return method.startswith("resources/")
