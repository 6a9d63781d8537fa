"""The forwarder of a model's calls to the views of one app, with a record that a test can read."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.exchange.approval_step import ApprovalStep
from gateway.exchange.approvals import MemoryApprovals, MemoryGrants
from gateway.exchange.limit import Limiter, MemoryRates
from gateway.exchange.record import OnFailure, Recorder
from gateway.exchange.tool_calls import ToolCalls
from gateway.hooks import Hooks
from gateway.policy import Policy
from gateway.stores.journal import Journal
from gateway.stores.sql import Database
from gateway.stores.usage import DatabaseQuotas
from gateway.views.forward import Forwarder
from gateway.views.registry import Views
from gateway.views.view import AppRules
from tests.views.memory import views_of


@dataclass(slots=True)
class Rooms:
    """A forwarder and its collaborators."""

    forwarder: Forwarder
    views: Views
    approvals: MemoryApprovals
    journal: Journal

    def outcomes(self) -> list[dict[str, Any]]:
        """Return the outcome lines of the record."""
        found = [json.loads(line) for line in self.journal.path.read_text("utf-8").splitlines()]
        return [line["fields"] for line in found if line["phase"] == "outcome"]


@asynccontextmanager
async def rooms(folder: Path, policy: Policy) -> AsyncIterator[Rooms]:
    """Run them; the app is the cart."""
    async with (
        Journal(folder / "journal") as journal,
        Database(f"sqlite:///{folder}/gateway.db") as database,
        views_of({"cart": AppRules("Cart", policy)}) as views,
    ):
        approvals = MemoryApprovals(120)
        recorder = Recorder(journal, Hooks([], folder), OnFailure.REFUSE_UNSAFE)
        limiter = Limiter(MemoryRates(), DatabaseQuotas(database))
        step = ApprovalStep(approvals, MemoryGrants(), "http://console.test/approvals/")
        forwarder = Forwarder(views, ToolCalls(step, limiter=limiter, recorder=recorder))
        yield Rooms(forwarder, views, approvals, journal)
