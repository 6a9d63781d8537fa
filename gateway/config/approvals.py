"""Reads `approvals` of gateway.yaml: the ways to ask people, the timeout, and the presence check."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from gateway.config import locations
from gateway.config.locations import network
from gateway.config.secrets import secret
from gateway.config.settings import DEFAULTS
from gateway.documents import Section, parse_duration, suggestion
from gateway.documents.nodes import quote
from gateway.model import Secret
from gateway.policy import Network

SHORTEST = 32
"""Minimum characters of a webhook's signing secret."""

TOUCH = "presence: webauthn asks for a touch, which only the console's page can take"


class ApprovalWay(StrEnum):
    """A way to ask a person."""

    CONSOLE = "console"
    ELICITATION = "elicitation"
    CLI = "cli"
    WEBHOOK = "webhook"
    PLUGIN = "plugin"


class PresenceCheck(StrEnum):
    """The proof that a person is present when approving."""

    NONE = "none"
    WEBAUTHN = "webauthn"


@dataclass(frozen=True, slots=True)
class Webhook:
    """The destination of questions, signed with `secret`; `answers` means that signed replies count."""

    url: str
    secret: Secret = field(compare=False)
    fingerprint: str = field(repr=False)
    answers: bool
    network: Network

    @property
    def name(self) -> str:
        """Its name in messages."""
        return "approvals.webhook"


@dataclass(frozen=True, slots=True)
class ApprovalSettings:
    """The ways to ask people, in order. `timeout` is in seconds; `interactive` are clients that may ask for a code."""

    timeout: float
    ask: tuple[ApprovalWay, ...] = (ApprovalWay.CONSOLE, ApprovalWay.ELICITATION, ApprovalWay.CLI)
    presence: PresenceCheck = PresenceCheck.NONE
    interactive: tuple[str, ...] = ()
    webhook: Webhook | None = None


def read_approvals(section: Section, folder: Path, environ: Mapping[str, str]) -> ApprovalSettings:
    """Read the section; problems are reported in it."""
    ask = _ways(section)
    presence = PresenceCheck(section.choice("presence", tuple(PresenceCheck), DEFAULTS["approvals.presence"]))
    interactive = section.texts("interactive")
    webhook = _webhook(section, ask, presence, folder, environ)
    if interactive and ApprovalWay.ELICITATION not in ask:
        section.problem('has no meaning without "elicitation" under ask', "interactive")
    if interactive and presence is PresenceCheck.WEBAUTHN:
        section.problem(f"{TOUCH}: leave interactive out", "interactive")
    return ApprovalSettings(
        timeout=section.duration("timeout", parse_duration(DEFAULTS["approvals.timeout"])),
        ask=ask,
        presence=presence,
        interactive=interactive,
        webhook=webhook,
    )


def _ways(section: Section) -> tuple[ApprovalWay, ...]:
    known = tuple(ApprovalWay)
    usual = tuple(DEFAULTS["approvals.ask"].strip("[]").split(", "))
    names = section.texts(
        "ask", usual, empty=f"name at least one way of {', '.join(known)}: otherwise no person is ever asked"
    )
    for name in names:
        if name not in known:
            near = suggestion(name, known)
            section.problem(f"must be one of {', '.join(known)}, not {quote(name)}{near}", "ask")
    if len(set(names)) < len(names):
        section.problem("names a way twice", "ask")
    return tuple(ApprovalWay(name) for name in dict.fromkeys(names) if name in known)


def _webhook(
    section: Section, ask: tuple[ApprovalWay, ...], presence: PresenceCheck, folder: Path, environ: Mapping[str, str]
) -> Webhook | None:
    if section.get("webhook") is None:
        if ApprovalWay.WEBHOOK in ask:
            section.problem('"webhook" needs approvals.webhook: {url: …, secret: "${env:NAME}"}', "ask")
        return None
    rule = section.section("webhook")
    if ApprovalWay.WEBHOOK not in ask:
        section.problem('has no meaning without "webhook" under ask', "webhook")
    rule.require("url", "secret")
    url, key = locations.url(rule, "url"), secret(rule, "secret", folder, environ)
    if key.reveal() and len(key.reveal()) < SHORTEST:
        rule.problem(
            f'has fewer than {SHORTEST} characters; make one: python -c "import secrets; print(secrets.token_hex(32))"',
            "secret",
        )
    answers = rule.flag("answers")
    if answers and presence is PresenceCheck.WEBAUTHN:
        rule.problem(f"{TOUCH}: leave answers out", "answers")
    return Webhook(
        url=url,
        secret=key,
        fingerprint=hashlib.sha256(key.reveal().encode()).hexdigest(),
        answers=answers,
        network=network(rule, "public", folder),
    )
