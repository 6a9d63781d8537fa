"""A request that waits for a connected account."""

import pytest

from gateway.exchange.authenticate import MissingAccounts
from gateway.model import LOCAL, Caller, Door, Initiator
from tests.exchange.house import ends_when_cancelled

CALLER = Caller(LOCAL, "cart", Door.MCP, Initiator.MODEL, "model-call")


@pytest.mark.parametrize("turns", range(4))
async def test_who_waits_and_is_cancelled_ends_also_as_the_account_comes(turns: int) -> None:
    """When the gateway stops, it cancels a waiter only once."""
    absences = MissingAccounts()
    with absences.register(CALLER, "shop", "https://gateway.example/connect/shop", lambda visit: None) as need:
        assert need is not None
        await ends_when_cancelled(need.again(), lambda: absences.note_connection("shop", LOCAL.person), turns)
