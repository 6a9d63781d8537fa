"""Tokens of an app's own login: passed on to their backend, or kept from the page, which gets handles of them.

A handle is the sealed token itself, so that nothing is stored. It opens for one person, app and backend.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol
from urllib.parse import quote_plus

from msgspec.structs import replace

from gateway.bounds import Area, Bound
from gateway.crypto import base64url
from gateway.errors import Reason, Refusal
from gateway.exchange.authenticate import NOTHING, InjectedFields
from gateway.exchange.decided_request import LONG, BackendAnswer, DecidedRequest
from gateway.exchange.filter import NAME, SHORTEST, SecretRedactor, replace_values
from gateway.exchange.record import Record
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Caller, CanonicalRequest, Headers, Json
from gateway.policy import AppAuthorization, BackendSpec
from gateway.policy.destinations import canonical_origin
from gateway.stores.sealing import SealBroken

FIELD: Final = "authorization"

REMEMBERED: Final = 8
"""Tokens of one caller at one app that are masked in the results of the page's tools, and as many of the vault."""

CALLERS: Final = 1024
"""Callers whose tokens are remembered."""

LONGEST: Final = 16 * 1024
"""Characters of a token that becomes a handle."""

BOUNDS: Final = (
    Bound(
        Area.CREDENTIALS,
        "tokens of pages that are masked in tool results",
        f"{REMEMBERED} for each of {CALLERS:,} callers and apps",
        "the least recently used are forgotten",
        uncounted="a token that is sent again is remembered again",
    ),
)

_Recent = OrderedDict[tuple[str, str], OrderedDict[str, None]]
"""Secrets by person and app, the most recently used ones last."""

_WORDS: Final = frozenset({"undefined", "[object Object]"})
"""Values that scripts write in place of a token that they do not have."""

_PREFIX: Final = "wgv1_"
_HANDLE = re.compile(rf"(?:([\w-]+\.[\w-]+)\.)?{_PREFIX}([0-9a-f]{{12}})_([\w-]+)", re.ASCII)
_JWT = re.compile(r"([\w-]+\.[\w-]+)\.([\w-]+)", re.ASCII)


class Seals(Protocol):
    """The keys of the gateway: `gateway.stores.sealing.KeyRing`."""

    def seal(self, text: str, place: str) -> tuple[str, bytes]: ...

    def open(self, id: str, ciphertext: bytes, place: str) -> str: ...


class PageTokens:
    """The tokens that pages send, under the `authorization` of their backends."""

    def __init__(self, seals: Seals) -> None:
        self._seals = seals
        self._page_values: _Recent = OrderedDict()
        self._vaulted: _Recent = OrderedDict()

    def inject(
        self, decided_request: DecidedRequest, spec: BackendSpec, caller: Caller, record: Record
    ) -> InjectedFields:
        """Return the page's own `authorization` as its backend gets it; `record` notes whether it was sent or dropped.

        Only a proven view has one: a model never sends a token of its own.
        """
        values = [value for name, value in decided_request.request.headers if name.lower() == FIELD]
        if not values:
            return NOTHING
        value = self._value(values, spec, caller) if caller.proven else None
        record.note(authorization="dropped" if value is None else str(spec.authorization))
        if value is None:
            return InjectedFields(dropped=True)
        if spec.authorization is AppAuthorization.PASS:
            return InjectedFields(((FIELD, value),))  # the page holds it: its backend may answer with it
        _remember(self._vaulted, caller, _secrets(value))
        return InjectedFields(((FIELD, value),), _secrets(value))

    def vaulted(self, spec: BackendSpec, caller: Caller) -> tuple[str, ...]:
        """Return the tokens that this caller's pages recently had handles of, for any answer or message of `spec`."""
        if spec.authorization is not AppAuthorization.VAULT:
            return ()
        return tuple(self._vaulted.get((caller.principal.person, caller.app), ()))

    def notice(self, headers: Headers, caller: Caller) -> None:
        """Remember the token that a proven view sends, before anything of its request is shown or recorded.

        Also if it is dropped: a page that sends one may have it in a URL or a body, too.
        """
        for name, value in headers:
            if caller.proven and name.lower() == FIELD:
                _remember(self._page_values, caller, _secrets(value))

    def redactor(self, caller: Caller) -> Callable[[str], str] | None:
        """Return a function that masks the tokens that this caller's pages recently sent; None without any."""
        values = self._page_values.get((caller.principal.person, caller.app))
        if not values:
            return None
        forms = [secret.replace(" ", "+") for secret in values if " " in secret]  # as forms are encoded
        return SecretRedactor([*values, *forms]).for_people

    def open_body(
        self, decided_request: DecidedRequest, spec: BackendSpec, caller: Caller
    ) -> tuple[bytes, tuple[str, ...]]:
        """Return the body to send, with the tokens of its handles where the route has a `vault`, and these tokens."""
        canonical, tokens = decided_request.canonical, list[str]()
        if decided_request.obligations.vault is None or not caller.proven or _PREFIX.encode() not in canonical.body:
            return canonical.body, ()
        write = _escape(canonical)

        def token(match: re.Match[str]) -> str:
            text = self._open(match[0], spec, caller)
            if text is None:
                return match[0]
            tokens.append(text)
            return write(text)

        text = canonical.body.decode("utf-8", "surrogateescape")
        return _HANDLE.sub(token, text).encode("utf-8", "surrogateescape"), tuple(tokens)

    async def seal(
        self, answer: BackendAnswer, decided_request: DecidedRequest, spec: BackendSpec, caller: Caller
    ) -> BackendAnswer:
        """Return the answer with handles for the tokens that the route names.

        Raises `Refusal` (`backend-protocol`) for an answer in which they cannot be found.
        """
        paths = decided_request.obligations.vault
        if not paths:
            return answer
        tokens = list[str]()

        def handle(value: Json) -> Json:
            if not isinstance(value, str) or not value:
                return value
            if len(value) > LONGEST:
                raise Refusal(Reason.BACKEND_PROTOCOL, f"The backend's token is longer than {LONGEST:,} characters.")
            tokens.append(value)
            return self._handle(value, spec, caller)

        body = answer.response.body
        work = (answer.response, paths, handle)
        response = await asyncio.to_thread(replace_values, *work) if len(body) > LONG else replace_values(*work)
        _remember(self._vaulted, caller, [text for token in tokens for text in _secrets(token)])
        return replace(answer, response=response, secrets={**answer.secrets, **dict.fromkeys(tokens, NAME)})

    def _value(self, values: list[str], spec: BackendSpec, caller: Caller) -> str | None:
        if len(values) > 1:
            raise Refusal(Reason.BAD_REQUEST, "more than one authorization header: send one")
        if spec.authorization is AppAuthorization.PASS:
            return values[0].strip(" \t")
        if spec.authorization is AppAuthorization.VAULT:
            scheme, space, handle = values[0].strip(" \t").rpartition(" ")
            token = self._open(handle, spec, caller)
            return None if token is None else f"{scheme}{space}{token}"
        return None

    def _handle(self, token: str, spec: BackendSpec, caller: Caller) -> str:
        """Return a handle: of a JSON Web Token the signature alone is sealed, as pages read when it expires."""
        public_part, secret_part = _split(token)
        id, ciphertext = self._seals.seal(secret_part, _place(spec, caller, public_part))
        return f"{public_part}{'.' if public_part else ''}{_PREFIX}{id}_{base64url(ciphertext)}"

    def _open(self, handle: str, spec: BackendSpec, caller: Caller) -> str | None:
        """Return the token of a handle of this person, app and backend; None for any other text."""
        match = _HANDLE.fullmatch(handle)
        if match is None:
            return None
        public_part = match[1] or ""
        try:
            ciphertext = base64.urlsafe_b64decode(match[3] + "=" * (-len(match[3]) % 4))
            secret_part = self._seals.open(match[2], ciphertext, _place(spec, caller, public_part))
        except (SealBroken, binascii.Error):
            return None
        return f"{public_part}.{secret_part}" if public_part else secret_part


def _remember(recent: _Recent, caller: Caller, secrets: Sequence[str]) -> None:
    key = (caller.principal.person, caller.app)
    values = recent.setdefault(key, OrderedDict())
    recent.move_to_end(key)
    for secret in secrets:
        values[secret] = None
        values.move_to_end(secret)
    while len(values) > REMEMBERED:
        values.popitem(last=False)
    while len(recent) > CALLERS:
        recent.popitem(last=False)


def _place(spec: BackendSpec, caller: Caller, public_part: str) -> str:
    scheme, _, rest = spec.url.partition("://")
    origin = canonical_origin(scheme, rest.partition("/")[0])
    return "\n".join(("page token", caller.principal.person, caller.app, origin, public_part))


def _split(token: str) -> tuple[str, str]:
    """Return the part of a token that a page may read, and the part that proves it."""
    match = _JWT.fullmatch(token)
    if match is None:
        return "", token
    try:
        header = parse_json(base64.urlsafe_b64decode(match[1].partition(".")[0] + "==").decode("utf-8"))
    except ValueError:
        return "", token
    return (match[1], match[2]) if isinstance(header, dict) else ("", token)


def _secrets(value: str) -> tuple[str, ...]:
    """Return the secret texts of an `authorization`: the token, and the password of Basic."""
    scheme, _, token = value.rpartition(" ")
    tokens = [token]
    if scheme.strip().lower() == "basic":
        with suppress(ValueError):
            tokens.append(base64.b64decode(token, validate=True).decode("utf-8").partition(":")[2])
    return tuple(text for text in tokens if len(text) >= SHORTEST and text not in _WORDS)


def _escape(canonical: CanonicalRequest) -> Callable[[str], str]:
    """Return a function that writes a text into a string of this body."""
    type = next((value for name, value in canonical.headers if name == "content-type"), "")
    essence = type.partition(";")[0].strip().lower()
    if essence == "application/x-www-form-urlencoded":
        return quote_plus
    if essence == "application/json" or essence.endswith("+json"):
        return lambda text: plain_json(text)[1:-1]
    return str
