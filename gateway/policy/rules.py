"""The rules of a policy, and the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.errors import Reason, Refusal
from gateway.model import Caller, CanonicalRequest, Effect, Headers, Initiator, Json
from gateway.policy.conditions import Condition
from gateway.policy.destinations import PUBLIC, Network
from gateway.policy.facts import FactSource, Finder
from gateway.policy.masks import JsonPath
from gateway.policy.messages import MessageTemplate
from gateway.policy.obligations import (
    NO_OBLIGATIONS,
    SAFE_METHODS,
    AppAuthorization,
    Circuit,
    Cookies,
    Limit,
    Obligations,
    Quota,
    Retry,
    SocketRule,
)
from gateway.policy.schemas import BodySchema
from gateway.policy.templates import Template

TOOL_CALL: Final = "tools/call"
METHODS: Final = SAFE_METHODS | {"POST", "PUT", "PATCH", "DELETE"}


@dataclass(frozen=True, slots=True)
class Confirm:
    """The calls that need an approval (`initiators` None: all), and the question.

    `finders` find the values of the message's names, in order. `grant` is for how many seconds a person may allow all
    calls under the rule, None if each call needs a question; `timeout` how many seconds the question stays open, None
    for the configured time.
    """

    initiators: frozenset[Initiator] | None
    message: MessageTemplate
    finders: tuple[Finder, ...] = ()
    grant: float | None = None
    timeout: float | None = None

    def applies(self, caller: Caller) -> bool:
        """Return whether a call of `caller` needs an approval."""
        return self.initiators is None or caller.initiator in self.initiators

    def question(self, source: FactSource) -> str:
        """Return the question with its values filled in."""
        return self.message.fill(find(source) for find in self.finders)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on one call, with reasons. `route` is the path template or tool name of the rule.

    `reason` is the code for a denied caller: `policy-denied`, or `condition-limit`.
    """

    effect: Effect
    reasons: tuple[str, ...]
    route: str | None = None
    obligations: Obligations = NO_OBLIGATIONS
    reason: Reason = Reason.POLICY_DENIED

    def refusal(self) -> Refusal:
        """Return the refusal of a denied call."""
        return Refusal(self.reason, "; ".join(self.reasons))


@dataclass(frozen=True, slots=True)
class Route:
    """A rule for requests; `index` is its position in the file. `methods` None: all, `backend` None: any.

    `decision` is the decision if `when` and `schema` hold and no approval is needed; `reads_body` means that one of
    these reads the body. `snapshot` are the URLs, path and query, whose answers are packed into the page. `file` is the
    part that it comes from, empty for the policy's own file.
    """

    index: int
    line: int
    template: Template
    methods: frozenset[str] | None
    backend: str | None
    deny: str | None
    confirm: Confirm | None
    decision: Decision
    when: Condition | None = None
    schema: BodySchema | None = None
    reads_body: bool = False
    snapshot: tuple[str, ...] = ()
    file: str = ""

    @property
    def place(self) -> str:
        """The place of the rule."""
        return rule_place(self.line, self.file)

    @property
    def label(self) -> str:
        """The route as reasons name it."""
        return route_name(self.methods, self.template, self.place)


def rule_place(line: int, file: str) -> str:
    """Return where a rule is written; `file` is empty if that is the policy's own file."""
    return f"{file}, line {line}" if file else f"line {line}"


def route_name(methods: frozenset[str] | None, template: Template, place: str) -> str:
    """Return a route as reasons name it."""
    method_text = ", ".join(sorted(methods)) + " " if methods else ""
    return f"{method_text}{template.text} ({place})"


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The largest values that hold for calls; None for those that are not limited."""

    timeout: float | None = None
    request: int | None = None
    response: int | None = None
    limits: tuple[Limit, ...] = ()
    quotas: tuple[Quota, ...] = ()
    mask: tuple[JsonPath, ...] = ()
    headers: frozenset[str] | None = None

    def apply(self, to: Obligations) -> Obligations:
        """Return obligations within these: the smaller number holds, rates, quotas and masks are added."""
        return replace(
            to,
            timeout=to.timeout if self.timeout is None else min(to.timeout, self.timeout),
            request_limit=to.request_limit if self.request is None else min(to.request_limit, self.request),
            response_limit=to.response_limit if self.response is None else min(to.response_limit, self.response),
            limits=(*to.limits, *self.limits),
            quotas=(*to.quotas, *self.quotas),
            mask=(*to.mask, *(path for path in self.mask if path not in to.mask)),
            socket=None if to.socket is None else self._of_socket(to.socket),
            response_headers=to.response_headers if self.headers is None else to.response_headers & self.headers,
        )

    def _of_socket(self, rule: SocketRule) -> SocketRule:
        """Return the rule of WebSockets whose messages are no larger than bodies may be."""
        return replace(rule, message=min(rule.message, self.request or rule.message, self.response or rule.message))


@dataclass(frozen=True, slots=True)
class OrganisationRule:
    """One rule for requests of every app: all that match a request hold, in addition to its route.

    `deny` refuses, `when` must be true, `confirm` asks a person, and `ceilings` limit.
    """

    template: Template
    methods: frozenset[str] | None
    deny: str | None
    confirm: Confirm | None
    ceilings: Ceilings
    line: int
    file: str
    when: Condition | None = None

    @property
    def label(self) -> str:
        """The rule as reasons name it."""
        method_text = ", ".join(sorted(self.methods)) + " " if self.methods else ""
        return f"{method_text}{self.template.text} of the organisation ({rule_place(self.line, self.file)})"

    @property
    def does(self) -> str:
        """The effect of the rule, in words."""
        words = [f"denied: {self.deny}"] if self.deny is not None else []
        words += [f"only where {self.when.text}"] if self.when is not None else []
        words += ["a person is asked first"] if self.confirm is not None else []
        return "; ".join(words) or "limits"

    @property
    def content(self) -> tuple[object, ...]:
        """The effect of the rule, without its place."""
        shape = (self.template.segments, self.template.rest, self.methods, self.deny, self.ceilings)
        asks = self.confirm and (self.confirm.initiators, self.confirm.grant, self.confirm.message)
        return (*shape, self.when and self.when.text, asks)


@dataclass(frozen=True, slots=True)
class ToolRule:
    """A rule for one WebMCP tool of the page, under the page's own name for it."""

    name: str
    line: int
    deny: str | None
    confirm: Confirm | None
    limits: tuple[Limit, ...]
    description: str | None
    quotas: tuple[Quota, ...] = ()
    pin: str | None = None
    when: Condition | None = None
    timeout: float | None = None
    """Seconds that a call may take, instead of the default."""
    file: str = ""
    """The part that it comes from; empty for the policy's own file."""
    also: tuple[ToolRule, ...] = ()
    """The rules of the organisation for this tool, which hold in addition."""

    @property
    def place(self) -> str:
        """The place of the rule."""
        return rule_place(self.line, self.file)

    @property
    def asks(self) -> bool:
        """True if a call may need a person."""
        return any(rule.confirm is not None for rule in (self, *self.also))

    @property
    def at_gateway_only(self) -> bool:
        """True if only the gateway may offer the tool: no other host would enforce its rule."""
        rules = (self.deny, self.confirm, self.when, self.pin, self.timeout)
        return any(rule is not None for rule in rules) or bool(self.limits or self.quotas or self.also)


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """A backend of a policy. `url` has no trailing slash; `type` is `http`, or registered by a plugin.

    `origins` are origins of absolute URLs that mean this backend. `options` are the other keys of a plugin's type.
    `trace` decides whether the backend gets the trace context, `authorization` what becomes of that of a page.
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
    trace: bool = True
    authorization: AppAuthorization = AppAuthorization.DROP

    def target(self, request: CanonicalRequest) -> str:
        """Return the absolute URL of `request`, already percent-encoded: it is sent byte for byte."""
        return self.url + request.url


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """An expectation: `expect` is `allow`, `deny` or `confirm`. `file` and `line` are its position.

    For a tool, `method` is `tools/call` and `url` the page's name of the tool. `body` is JSON text.
    """

    method: str
    url: str
    initiator: Initiator
    principal: str | None
    expect: str
    line: int
    file: str = ""
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, Json] = field(default_factory=dict)
    headers: Headers = ()
    body: str | None = None
    arguments: Mapping[str, Json] = field(default_factory=dict)

    @property
    def is_tool(self) -> bool:
        """True if it tests a tool of the page."""
        return self.method == TOOL_CALL
