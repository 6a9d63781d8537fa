"""Credentials of plugins: their header fields are checked, and waited for with the timeout of a server."""

import asyncio
from typing import Any

import pytest

from gateway.errors import Reason, Refusal
from gateway.exchange import authenticate
from gateway.exchange.authenticate import PluginCredential
from gateway.model import LOCAL, Headers


class Plugin:
    """Returns `fields`; a text makes it hang, an exception type is raised."""

    def __init__(self, fields: Any) -> None:
        self._fields = fields

    async def headers(self, principal: object, method: str, url: str) -> Headers:
        """Return the test's fields."""
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
    """The error contains the name of the credential and nothing of the field."""
    monkeypatch.setattr(authenticate, "TIMEOUT", 0.01)
    with pytest.raises(Refusal, match=r"credential 'k': its plugin failed$") as refused:
        await PluginCredential("k", Plugin(fields)).inject(LOCAL, "GET", "http://b/")
    assert refused.value.reason is Reason.CREDENTIAL_FAILED
