"""What a policy says, and what a decision is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.errors import Reason, Refusal
from gateway.model import Caller, CanonicalRequest, Effect, Initiator, Json
from gateway.policy.messages import Message
from gateway.policy.network import PUBLIC, Network
from gateway.policy.obligations import NO_OBLIGATIONS, SAFE_METHODS, Circuit, Cookies, Limit, Obligations, Quota, Retry
from gateway.policy.templates import Template

METHODS: Final = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}


@dataclass(frozen=True, slots=True)
class Confirm:
    """When a person is asked before a call runs (`initiators` None: always), and what."""

    initiators: frozenset[Initiator] | None
    message: Message

    def applies(self, caller: Caller) -> bool:
        """Whether a call of `caller` needs an approval."""
        return self.initiators is None or caller.initiator in self.initiators


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy says of one call, and why. `route` is the path template or tool name of the rule.

    `reason` is the code that a denied caller is told: `policy-denied`, or `condition-limit`.
    """

    effect: Effect
    reasons: tuple[str, ...]
    route: str | None = None
    obligations: Obligations = NO_OBLIGATIONS
    reason: Reason = Reason.POLICY_DENIED

    def refusal(self) -> Refusal:
        """What the caller of a denied call is told."""
        return Refusal(self.reason, "; ".join(self.reasons))


@dataclass(frozen=True, slots=True)
class Route:
    """A rule for requests; `index` is its place in the file. `methods` None: all, `backend` None: any.

    `decided` is the decision wherever no question has to be asked.
    """

    index: int
    line: int
    template: Template
    methods: frozenset[str] | None
    backend: str | None
    deny: str | None
    confirm: Confirm | None
    decided: Decision

    @property
    def shown(self) -> str:
        """The route in the words of a reason."""
        methods = ", ".join(sorted(self.methods)) + " " if self.methods else ""
        return f"{methods}{self.template.text} (line {self.line})"


@dataclass(frozen=True, slots=True)
class ToolRule:
    """A rule for one WebMCP tool of the page, by the page's own name for it."""

    name: str
    line: int
    deny: str | None
    confirm: Confirm | None
    limits: tuple[Limit, ...]
    description: str | None
    quotas: tuple[Quota, ...] = ()
    pin: str | None = None

    @property
    def held(self) -> bool:
        """Whether only the gateway may offer the tool, since no one else could enforce its rule."""
        return self.deny is not None or self.confirm is not None or bool(self.limits or self.quotas)


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """Where a policy's requests go. `url` has no slash at its end; `type` is `http`, or one that a plugin registers.

    `origins` are origins of absolute URLs that mean this backend. `options` are the other keys of a plugin's type.
    """

    name: str
    url: str
    credential: str | None = None
    origins: tuple[str, ...] = ()
    network: Network = PUBLIC
    type: str = "http"
    options: Mapping[str, Json] = field(default_factory=dict)
    retry: Retry | None = None
    circuit: Circuit | None = None
    cookies: Cookies = Cookies.NONE

    def target(self, request: CanonicalRequest) -> str:
        """The absolute URL that `request` means, percent-encoded already: to be sent byte for byte."""
        return self.url + request.url


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """An expectation in the policy file: `expect` is `allow`, `deny` or `confirm`."""

    method: str
    url: str
    initiator: Initiator
    principal: str | None
    expect: str
    line: int
