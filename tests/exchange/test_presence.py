"""Security keys of people: their number, and that of their challenges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.errors import Refusal
from gateway.exchange.presence import MOST, Presence
from gateway.model import LOCAL
from gateway.stores.one_time import MemoryOneTimeValues
from gateway.stores.security_keys import SecurityKeys
from gateway.stores.sql import Database
from tests.clock import Clock
from tests.software_key import SoftwareKey

CONSOLE = "http://console.localhost:8080"


@pytest.mark.bound("security keys and their challenges")
async def test_a_person_has_so_many_keys_and_one_challenge(tmp_path: Path) -> None:
    """A new challenge replaces the one before."""
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        values = MemoryOneTimeValues()
        presence = Presence(SecurityKeys(database), CONSOLE, values, Clock())
        keys: list[SoftwareKey] = []
        for number in range(MOST):
            begun: dict[str, Any] = {}
            for _ in range(3):
                before, begun = begun, await presence.begin_adding(LOCAL)
                assert len(values._values) == 1
            assert before["create"]["challenge"] != begun["create"]["challenge"]
            key = SoftwareKey("console.localhost", CONSOLE)
            touched = keys[0].get(begun["touch"]) if keys else None
            await presence.add(LOCAL, f"key {number}", key.create(begun["create"]), touched)
            keys.append(key)
        with pytest.raises(Refusal, match=f"{MOST} keys at most"):
            await presence.begin_adding(LOCAL)
        for key in keys:
            for _ in range(3):
                await presence.begin_removing(LOCAL, key.id)
        with pytest.raises(Refusal, match="no such key"):
            await presence.begin_removing(LOCAL, "made up")
        assert len(values._values) == MOST


async def test_a_challenge_that_another_one_replaced_is_good_for_nothing(tmp_path: Path) -> None:
    """The earlier attempt fails."""
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        presence = Presence(SecurityKeys(database), CONSOLE, MemoryOneTimeValues(), Clock())
        first, _ = await presence.begin_adding(LOCAL), await presence.begin_adding(LOCAL)
        key, create = SoftwareKey("console.localhost", CONSOLE), first["create"]
        assert isinstance(create, dict)
        with pytest.raises(Refusal, match="not a new key of this site"):
            await presence.add(LOCAL, "key", key.create(create), None)
