"""A stopped clock, and views on it."""

from collections.abc import AsyncIterator

import pytest

from gateway.views.registry import Views
from gateway.views.view import AppRules
from tests.clock import Clock
from tests.views.memory import views_of
from tests.views.rules import POLICY


@pytest.fixture
def clock() -> Clock:
    """A stopped clock."""
    return Clock()


@pytest.fixture
async def views(clock: Clock) -> AsyncIterator[Views]:
    """Views of two apps, none open."""
    rules = {"cart": AppRules("Cart", POLICY), "notes": AppRules("Notes", POLICY, unproven="deny")}
    async with views_of(rules, clock) as opened:
        yield opened
