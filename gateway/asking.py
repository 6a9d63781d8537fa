"""Builds what asks people and takes their answers, as `approvals` of gateway.yaml says."""

from __future__ import annotations

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.config import Config
from gateway.config import Presence as Touch
from gateway.config import Way as Named
from gateway.doors.approvals import ApprovalDoor
from gateway.doors.touch_keys import TouchKeyDoor
from gateway.exchange.answers import Answers
from gateway.exchange.approve import Approvals, Still
from gateway.exchange.grants import Grants
from gateway.exchange.presence import Presence
from gateway.exchange.record import Recorder
from gateway.exchange.ways import Way, Ways
from gateway.exchange.webhook import WebhookWay
from gateway.hooks import Hooks
from gateway.mcp.elicit import Asking
from gateway.stores.sql import Database
from gateway.stores.touch_keys import TouchKeys


class Approving:
    """Questions, grants and answers of one gateway. `page` and an id show one question.

    `still` says whether what proved a caller still does.
    """

    def __init__(
        self,
        config: Config,
        recorder: Recorder,
        hooks: Hooks,
        connections: Connections,
        database: Database,
        still: Still,
    ) -> None:
        settings = config.approvals
        self._settings = settings
        self._hooks = hooks
        self._connections = connections
        self.page = f"{config.server.origins.console}/approvals/"
        self.questions = Approvals(settings.timeout, still=still)
        self.grants = Grants()
        needed = settings.presence is Touch.WEBAUTHN
        self.presence = Presence(TouchKeys(database), config.server.origins.console) if needed else None
        self.answers = Answers(self.questions, self.grants, recorder, self.presence)
        self.keys = TouchKeyDoor(self.presence, recorder)
        self.door = ApprovalDoor(self.answers, settings.ask, settings.webhook)
        self.ways = Ways(self.questions, self.answers, self._ways())

    @property
    def asked_of_policies(self) -> Approvals | None:
        """Where people are asked before a loosened policy takes effect; None where they are not."""
        return self.questions if self.presence is not None else None

    def elicitation(self) -> Asking:
        """What MCP clients may do for a question."""
        asks = Named.ELICITATION in self._settings.ask
        return Asking(visits=asks, interactive=self._settings.interactive, typed=self.answers)

    def outdated(self, app: str, policy_version: str) -> None:
        """The app has another policy now, or none: what was asked, approved or granted under an older one is void."""
        self.questions.cancel_outdated(app, policy_version)
        self.grants.cancel_outdated(app, policy_version)

    def _ways(self) -> list[Way]:
        """The ways that the gateway goes by itself; the console, clients and the CLI come and look."""
        found: list[Way] = []
        for named in self._settings.ask:
            if named is Named.PLUGIN:
                found += self._hooks.approvers
            elif named is Named.WEBHOOK and self._settings.webhook is not None:
                webhook = self._settings.webhook
                backend = HttpBackend(webhook, self._connections)
                found.append(WebhookWay(backend, webhook.url, webhook.secret, self.page))
        return found
