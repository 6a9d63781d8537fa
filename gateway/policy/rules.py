"""What a policy says, and what a decision is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from gateway.errors import Reason, Refusal
from gateway.model import Caller, CanonicalRequest, Effect, Initiator, Json
from gateway.policy.gcra import Rate
from gateway.policy.headers import DEFAULT_RESPONSE
from gateway.policy.messages import Message
from gateway.policy.network import PUBLIC, Network
from gateway.policy.templates import Template

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS: Final = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}


class Per(StrEnum):
    """Whose requests count together under a rate."""

    VIEW = "view"
    PRINCIPAL = "principal"
    APP = "app"
    ROUTE = "route"


@dataclass(frozen=True, slots=True)
class Limit:
    """A rate and whose requests count together; `scope` names the rule that sets it, "" for the defaults."""

    rate: Rate
    per: Per
    scope: str = ""

    def key(self, caller: Caller) -> str:
        """The name of the bucket for `caller`. Per view without a proven view counts per principal."""
        per = self.per
        if per is Per.VIEW and not (caller.proven and caller.view):
            per = Per.PRINCIPAL
        match per:
            case Per.VIEW:
                subject = caller.view or ""
            case Per.PRINCIPAL:
                subject = caller.principal.id
            case Per.APP | Per.ROUTE:
                subject = ""
        return "\n".join((caller.app, self.scope, f"{self.rate.count}/{self.rate.period:g}", per, subject))


@dataclass(frozen=True, slots=True)
class Confirm:
    """When a person is asked before a call runs (`initiators` None: always), and what."""

    initiators: frozenset[Initiator] | None
    message: Message

    def applies(self, caller: Caller) -> bool:
        """Whether a call of `caller` needs an approval."""
        return self.initiators is None or caller.initiator in self.initiators


@dataclass(frozen=True, slots=True)
class Obligations:
    """What must be done for an allowed call. `confirm` is the question to a person, None where none is needed.

    `timeout` is in seconds, the other limits are in bytes. `no_store` says that its rule may ask for approval.
    """

    confirm: str | None = None
    limits: tuple[Limit, ...] = ()
    timeout: float = 10.0
    request_limit: int = 1024 * 1024
    response_limit: int = 5 * 1024 * 1024
    response_headers: frozenset[str] = DEFAULT_RESPONSE
    no_store: bool = False
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy says of one call, and why. `route` is the path template or tool name of the rule."""

    effect: Effect
    reasons: tuple[str, ...]
    route: str | None = None
    obligations: Obligations = Obligations()

    def refusal(self) -> Refusal:
        """What the caller of a denied call is told."""
        return Refusal(Reason.POLICY_DENIED, "; ".join(self.reasons))


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

    @property
    def held(self) -> bool:
        """Whether only the gateway may offer the tool, since no one else could enforce its rule."""
        return self.deny is not None or self.confirm is not None or bool(self.limits)


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
