"""Credentials of plugins: what they give is looked at, and waited for no longer than for a server."""

import asyncio
from typing import Any

import pytest

from gateway.errors import Reason, Refusal
from gateway.exchange import authenticate
from gateway.exchange.authenticate import OfPlugin
from gateway.model import LOCAL, Headers


class Plugin:
    """Gives `fields`, or nothing for ever where they are a text; where they are a type, leaves."""

    def __init__(self, fields: Any) -> None:
        self._fields = fields

    async def headers(self, principal: object, method: str, url: str) -> Headers:
        """What was given."""
        if isinstance(self._fields, str):
            await asyncio.Event().wait()
        if isinstance(self._fields, type):
            raise self._fields
        fields: Headers = self._fields
        return fields


@pytest.mark.parametrize(
    "fields",
    [
        "never",
        SystemExit,
        asyncio.CancelledError,
        None,
        {"x-key": "secret"},
        (("x-key", 5),),
        (("x-key", "a\r\nhost: b"),),
        (("x key", "a"),),
    ],
)
async def test_what_is_no_field_fails(fields: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller hears the name of the credential and nothing of what it gave."""
    monkeypatch.setattr(authenticate, "TIMEOUT", 0.01)
    with pytest.raises(Refusal, match=r"credential 'k': its plugin failed$") as refused:
        await OfPlugin("k", Plugin(fields)).inject(LOCAL, "GET", "http://b/")
    assert refused.value.reason is Reason.CREDENTIAL_FAILED
