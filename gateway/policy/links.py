"""Which places an app may ask to open in the person's browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.policy.rules import Confirm
from gateway.policy.templates import Template


@dataclass(frozen=True, slots=True)
class LinkPattern:
    """An origin and the paths of it, such as `https://shop.example.com/**`."""

    text: str
    origin: str
    template: Template


@dataclass(frozen=True, slots=True)
class Links:
    """What `links` of a policy says; without patterns no link is opened. `confirm` None: nobody is asked."""

    allow: tuple[LinkPattern, ...] = ()
    confirm: Confirm | None = None


NO_LINKS: Final = Links()
