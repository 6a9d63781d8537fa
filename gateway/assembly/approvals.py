"""Builds the approvals of a gateway from `approvals` of gateway.yaml."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.callers.entitlements import Admits
from gateway.config import ApprovalSettings, Config, Webhook
from gateway.config import ApprovalWay as Named
from gateway.config import PresenceCheck as Touch
from gateway.doors.approvals import ApprovalDoor, SecurityKeyDoor
from gateway.exchange.approval_answers import ApprovalAnswers
from gateway.exchange.approvals import MemoryApprovals, MemoryApprovedVersions, MemoryGrants, Still
from gateway.exchange.approvers import Approvers, NamedApprover, WebhookApprover
from gateway.exchange.record import Recorder
from gateway.exchange.shared_approvals import DatabaseApprovals
from gateway.exchange.shared_grants import DatabaseGrants
from gateway.hooks import Hooks
from gateway.mcp.elicitation import Asking
from gateway.ports.approvals import ApprovedVersions
from gateway.ports.sessions import OneTimeValues
from gateway.stores.approved_versions import DatabaseApprovedVersions
from gateway.stores.sealing import KeyRing
from gateway.stores.security_keys import SecurityKeys
from gateway.stores.sql import Database

if TYPE_CHECKING:
    from gateway.exchange.presence import Presence


class ApprovalParts:
    """Questions, grants and answers of one gateway. `page` plus an id is the URL of one question.

    `settings` returns the current ones. `ring` are the keys of several processes, None for a single one. `still` checks
    whether a caller's credential is still valid; `admits` are the access rules.
    """

    def __init__(
        self,
        config: Config,
        settings: Callable[[], ApprovalSettings],
        recorder: Recorder,
        hooks: Hooks,
        connections: Connections,
        database: Database,
        ring: KeyRing | None,
        one_time: OneTimeValues,
        still: Still,
        admits: Admits,
    ) -> None:
        self._settings = settings
        self._hooks = hooks
        self._connections = connections
        self._webhook: tuple[Webhook, WebhookApprover] | None = None
        self.page = f"{config.server.origins.console}/approvals/"
        self.questions: MemoryApprovals
        self.grants: MemoryGrants | DatabaseGrants
        self.approved_versions: ApprovedVersions = MemoryApprovedVersions()
        if ring is None:
            self.questions, self.grants = MemoryApprovals(config.approvals.timeout, still=still), MemoryGrants()
        else:
            self.questions = DatabaseApprovals(database, ring, config.approvals.timeout, still=still)
            self.grants = DatabaseGrants(database, ring)
            self.approved_versions = DatabaseApprovedVersions(database, ring.derive("approved versions"))
        self.presence = _presence(config, database, ring, one_time)
        self.answers = ApprovalAnswers(self.questions, self.grants, recorder, self.presence, admits)
        self.keys = SecurityKeyDoor(self.presence, recorder)
        self.door = ApprovalDoor(self.answers, settings)
        self.ways = Approvers(self.questions, self.answers, self._ways)

    def jobs(self) -> list[Coroutine[Any, Any, None]]:
        """Return the background tasks."""
        return [
            self.questions.keep(),
            self.ways.run(),
            *([self.grants.keep()] if isinstance(self.grants, DatabaseGrants) else []),
        ]

    @property
    def asked_of_policies(self) -> MemoryApprovals | None:
        """The approvals that a loosened policy needs before it takes effect; None without `presence: webauthn`."""
        return self.questions if self.presence is not None else None

    def elicitation(self) -> Asking:
        """Return the ways in which MCP clients may take part in an approval."""
        return Asking(
            visits=lambda: Named.ELICITATION in self._settings().ask,
            interactive=lambda: self._settings().interactive,
            typed=self.answers,
        )

    def void_outdated(self, app: str, policy_version: str) -> None:
        """Void questions, approvals and grants under older policies: the app has another policy now, or none."""
        self.questions.cancel_outdated(app, policy_version)
        self.grants.cancel_outdated(app, policy_version)

    async def end_excluded(self, admits: Admits) -> None:
        """Void questions and grants of those who may not use the app any more."""
        self.questions.cancel_excluded(admits)
        for grant in self.grants.now():
            if not admits(grant.principal, grant.app):
                with suppress(KeyError, OSError):  # it ended meanwhile; without the database no grant is valid
                    await self.grants.revoke(grant.id)

    def _ways(self) -> list[NamedApprover]:
        """Return the ways that the gateway starts itself; the console, clients and the CLI poll instead."""
        approvers: list[NamedApprover] = []
        settings = self._settings()
        for approver in settings.ask:
            if approver is Named.PLUGIN:
                approvers += self._hooks.approvers
            elif approver is Named.WEBHOOK and settings.webhook is not None:
                approvers.append(self._of_webhook(settings.webhook))
        return approvers

    def _of_webhook(self, webhook: Webhook) -> WebhookApprover:
        """Return the approver of a webhook, the same as long as its settings are."""
        if self._webhook is None or self._webhook[0] is not webhook:
            backend = HttpBackend(webhook, self._connections)
            self._webhook = (webhook, WebhookApprover(backend, webhook.url, webhook.secret, self.page))
        return self._webhook[1]


def _presence(config: Config, database: Database, ring: KeyRing | None, one_time: OneTimeValues) -> Presence | None:
    """Return the check of security keys, if it is configured."""
    if config.approvals.presence is not Touch.WEBAUTHN:
        return None
    from gateway.exchange.presence import Presence  # noqa: PLC0415  here, as it loads WebAuthn and its formats

    signing = ring.derive("security keys") if ring is not None else None
    return Presence(SecurityKeys(database, signing), config.server.origins.console, one_time)
