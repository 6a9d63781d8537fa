"""The endpoints by which persons connect and disconnect their accounts, with the redirect URI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlencode

from aiohttp import web

from gateway.crypto import equals_secret
from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import fresh, object_of, refusal_response
from gateway.errors import Refusal
from gateway.exchange.connecting import AccountConnection, Connecting
from gateway.exchange.record import Record, Recorder
from gateway.model import Caller, Door, Initiator, Json, Principal

_ANSWER: Final = ("code", "state", "iss", "error")
LONGEST: Final = 4096
_DOWN = "The database does not answer: nothing was changed."


class AccountsDoor:
    """The REST API of connected accounts. `audience` returns a principal's token in links to it.

    `serves` returns whether something that the principal may use needs a credential: others are not offered.
    """

    def __init__(
        self,
        connecting: Connecting,
        recorder: Recorder,
        audience: Callable[[Principal], str],
        serves: Callable[[Principal, str], bool] = lambda _, __: True,
    ) -> None:
        self._serves = serves
        self._connecting = connecting
        self._recorder = recorder
        self._audience = audience

    def has_accounts(self, principal: Principal) -> bool:
        """Return whether there are accounts that this principal can connect."""
        return self._connecting.offered and not principal.shared

    async def page(self, request: web.Request) -> web.Response:
        """Redirect a `connect_url` to the console's page. It starts nothing."""
        name, principal_name = (
            quote(request.match_info["name"], safe=""),
            quote(request.query.get("for", "")[:64], safe=""),
        )
        raise web.HTTPFound(f"/#/connections/{name}{f'/{principal_name}' if principal_name else ''}")

    async def callback(self, request: web.Request) -> web.Response:
        """Redirect from the authorization server to the console's page, which has the session to finish the login."""
        answer = {key: request.query[key][:LONGEST] for key in _ANSWER if key in request.query}
        if "name" in request.match_info:
            answer["callback"] = request.match_info["name"]
        # A raw header: `HTTPSeeOther` would normalize the URL, and change a code that contains `%26` or `%2B`.
        headers = {"location": f"/#/connected?{urlencode(answer)}", "cache-control": "no-store"}
        return web.Response(status=303, headers=headers)

    async def list(self, request: web.Request) -> web.Response:
        """List every account that this person can connect."""
        principal = request[PRINCIPAL]
        try:
            every = [] if principal.shared else await self._connecting.list(principal)
            # A connected account stays listed, so that its person can disconnect it.
            accounts = [one for one in every if one.since is not None or self._serves(principal, one.credential)]
        except OSError:
            return refusal_response(503, "database-unavailable", _DOWN)
        return fresh({"for": self._audience(principal), "connections": [_connection_json(one) for one in accounts]})

    async def begin(self, request: web.Request) -> web.Response:
        """`{for}`: return the authorization URL, and the secret that finishes the login."""
        principal, name = request[PRINCIPAL], request.match_info["name"]
        if not principal.session:
            return _not_a_person()
        if not self._serves(principal, name):
            return refusal_response(404, "bad-request", "There is no such account to connect here.")
        meant = (await object_of(request)).get("for")
        if isinstance(meant, str) and meant and not equals_secret(meant, self._audience(principal)):
            return refusal_response(
                403, "other-person", "This link belongs to another person: request one of your own."
            )
        try:
            attempt = await self._connecting.begin(name, principal)
        except Refusal as refusal:
            return _refusal(refusal)
        except OSError:
            return refusal_response(503, "database-unavailable", _DOWN)
        return fresh({"location": attempt.location, "secret": attempt.secret})

    async def finish(self, request: web.Request) -> web.Response:
        """`{secret, answer}`, with the parameters of the server's redirect: connect the account."""
        principal, body = request[PRINCIPAL], await object_of(request)
        if not principal.session:
            return _not_a_person()
        secret, answer = body.get("secret"), body.get("answer")
        texts = (
            {key: value for key, value in answer.items() if isinstance(value, str)} if isinstance(answer, dict) else {}
        )
        if not isinstance(secret, str):
            return refusal_response(400, "bad-request", "secret: a text; answer: an object.")
        record = self._record(principal, "connect")
        try:
            await record.open()  # without a record no account is connected
            account = await self._connecting.finish(principal, secret, texts)
        except Refusal as refusal:
            return await _close_record(record, refusal)
        except OSError:
            return await _down(record)
        record.note(credential=account.credential)
        await record.close(status=200)
        return fresh(_connection_json(account))

    async def disconnect(self, request: web.Request) -> web.Response:
        """Delete the connection of this person's account."""
        principal, name = request[PRINCIPAL], request.match_info["name"]
        if not principal.session:
            return _not_a_person()
        record = self._record(principal, "disconnect")
        record.note(credential=name[:200])
        await record.open(binding=False)
        try:
            revoked = await self._connecting.disconnect(name, principal)
        except Refusal as refusal:
            return await _close_record(record, refusal)
        except OSError:
            return await _down(record)
        await record.close(status=200)
        return fresh({"revoked": revoked})

    def _record(self, principal: Principal, what: str) -> Record:
        caller = Caller(principal, "", Door.CONSOLE, Initiator.PERSON, "console")
        record = self._recorder.start("credential", caller, safe=False)
        record.note(method=what, credential=None)
        return record


def _not_a_person() -> web.Response:
    """Return the refusal of a program with a person's token, which must not choose their accounts."""
    return refusal_response(403, "not-allowed", "A person does this, logged in to the console.")


def _refusal(refusal: Refusal) -> web.Response:
    return refusal_response(refusal.status, refusal.reason.value, refusal.detail)


async def _close_record(record: Record, refusal: Refusal) -> web.Response:
    await record.refuse(refusal)
    return _refusal(refusal)


async def _down(record: Record) -> web.Response:
    await record.close(status=503, detail=_DOWN)
    return refusal_response(503, "database-unavailable", _DOWN)


def _connection_json(one: AccountConnection) -> Json:
    return {
        "credential": one.credential,
        "title": one.title,
        "scope": list(one.scope),
        "since": one.since,
        "account": one.account.label if one.account is not None else None,
    }
