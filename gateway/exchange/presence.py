"""Proves a person's presence: they touch a security key, which signs the digest of the question."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from webauthn import (
    base64url_to_bytes,
    generate_authentication_options,
    generate_registration_options,
    options_to_json,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers import bytes_to_base64url
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    UserVerificationRequirement,
)

from gateway.bounds import Area, Bound
from gateway.crypto import frame_parts
from gateway.errors import LoginTooOld, Reason, Refusal
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Json, Principal, Question
from gateway.ports.sessions import OneTimeValues
from gateway.stores.security_keys import NAME, SecurityKey, SecurityKeys

LIFE = 120.0
"""Seconds to finish adding or removing a key."""

FRESH = 300.0
"""Seconds after a login in which a person may add their first key."""

MOST = 10
"""Keys of one person."""

CHALLENGES = 100_000
"""Challenges of all persons in one process."""

BOUNDS: Final = (
    Bound(
        Area.APPROVALS,
        "security keys and their challenges",
        f"{MOST} keys per person, one challenge to add one and one to remove each; {LIFE:g} s",
        "further keys are refused; a new challenge replaces the previous one",
    ),
)

(_TOUCH_KEYS,) = BOUNDS


class Presence:
    """The security keys of persons (WebAuthn Level 3). `console` is the origin of the page that shows approvals."""

    def __init__(
        self, keys: SecurityKeys, console: str, values: OneTimeValues, clock: Callable[[], float] = time.time
    ) -> None:
        self._keys = keys
        self._console = console
        self._site = urlsplit(console).hostname or ""
        self._clock = clock
        self._challenges = values

    async def keys(self, by: Principal) -> list[SecurityKey]:
        """The keys of a person."""
        return await self._keys.of(by.person)

    async def begin_adding(self, by: Principal) -> dict[str, Json]:
        """Return the options to create a key: `create`, and `touch` if an existing key must be touched first.

        Raises `LoginTooOld` for a first key if the person logged in too long ago.
        """
        known = await self.keys(by)
        self._hold_to_login(by, known)
        if len(known) >= MOST:
            _TOUCH_KEYS.report(by.id)
            raise _refusal(f"A person has {MOST} keys at most. Remove one first.")
        challenge = await self._begin(by, "add")
        options = generate_registration_options(
            rp_id=self._site,
            rp_name="webmcp-gateway",
            user_name=by.subject,
            user_id=hashlib.sha256(by.person.encode()).digest(),
            challenge=challenge,
            exclude_credentials=_descriptors(known),
            authenticator_selection=AuthenticatorSelectionCriteria(
                user_verification=UserVerificationRequirement.PREFERRED
            ),
        )
        touch = self._options(known, _over("add", challenge)) if known else None
        return {"create": parse_json(options_to_json(options)), "touch": touch}

    async def add(self, by: Principal, name: str, credential: Json, assertion: Json) -> SecurityKey:
        """Store a new key; a person who already has one must touch it. Raises `Refusal`, and `LoginTooOld`."""
        challenge = await self._end(by, "add")
        known = await self.keys(by)
        self._hold_to_login(by, known)
        if known:
            await self._verify(known, _over("add", challenge), assertion)
        try:
            verification = verify_registration_response(
                credential=_json(credential),
                expected_challenge=challenge,
                expected_rp_id=self._site,
                expected_origin=self._console,
            )
        except (WebAuthnException, ValueError) as error:
            raise _refusal(f"This is not a new key of this site: {error}") from error
        key = SecurityKey(
            id=bytes_to_base64url(verification.credential_id),
            person=by.person,
            name=name[:NAME],
            public=verification.credential_public_key,
            count=verification.sign_count,
            created=self._clock(),
        )
        if not await self._keys.add(key):
            raise _refusal("This key is known already.")
        return key

    async def begin_removing(self, by: Principal, id: str) -> Json:
        """Return what a key must sign before `id` is removed. Raises `Refusal`."""
        known = await self.keys(by)
        if id not in {key.id for key in known}:
            raise _refusal("There is no such key.")
        return self._options(known, _over("remove", await self._begin(by, f"remove {id}")))

    async def remove(self, by: Principal, id: str, assertion: Json) -> None:
        """Delete a key after the touch of one of the person's keys. Raises `Refusal`."""
        challenge = await self._end(by, f"remove {id}")
        await self._verify(await self.keys(by), _over("remove", challenge), assertion)
        if not await self._keys.remove(by.person, id):
            raise _refusal("There is no such key.")

    async def challenge(self, by: Principal, question: Question, *, lasting: bool) -> Json:
        """Return what a key must sign for `by` to approve `question`. Raises `Refusal` if the person has no key."""
        known = await self.keys(by)
        if not known:
            raise _refusal("An approval takes the touch of a security key: add yours on the console first.")
        return self._options(known, challenge_of(by, question, lasting=lasting))

    async def verify_touch(self, by: Principal, question: Question, assertion: Json, *, lasting: bool) -> None:
        """Verify an assertion for exactly this question. Raises `Refusal`."""
        await self._verify(await self.keys(by), challenge_of(by, question, lasting=lasting), assertion)

    async def _verify(self, known: Sequence[SecurityKey], challenge: bytes, assertion: Json) -> None:
        id = assertion.get("id") if isinstance(assertion, dict) else None
        key = next((key for key in known if key.id == id), None)
        if key is None:
            raise _refusal("The touch of one of your security keys is needed.")
        try:
            done = verify_authentication_response(
                credential=_json(assertion),
                expected_challenge=challenge,
                expected_rp_id=self._site,
                expected_origin=self._console,
                credential_public_key=key.public,
                credential_current_sign_count=key.count,
            )
        except (WebAuthnException, ValueError) as error:
            raise _refusal(f"The key has not signed this: {error}") from error
        await self._keys.store_use(key.id, done.new_sign_count)

    def _options(self, known: Sequence[SecurityKey], challenge: bytes) -> Json:
        options = generate_authentication_options(
            rp_id=self._site,
            challenge=challenge,
            allow_credentials=_descriptors(known),
            user_verification=UserVerificationRequirement.PREFERRED,
        )
        values: Json = parse_json(options_to_json(options))
        return values

    def _hold_to_login(self, by: Principal, known: Sequence[SecurityKey]) -> None:
        """Require a recent login for a first key: a session may be stolen. Without logins there is no such check."""
        seen = by.claims.get("auth_time")
        seen = seen if isinstance(seen, int | float) else 0.0
        if not known and by.expires is not None and self._clock() - seen > FRESH:
            raise LoginTooOld

    async def _begin(self, by: Principal, what: str) -> bytes:
        challenge = secrets.token_bytes(32)
        key = plain_json([by.person, what])
        await self._challenges.put(
            "challenge", key, challenge.hex(), owner=by.person, life=LIFE, each=MOST + 1, most=CHALLENGES
        )
        return challenge

    async def _end(self, by: Principal, what: str) -> bytes:
        challenge = await self._challenges.take("challenge", plain_json([by.person, what]))
        if challenge is None:
            raise _refusal("This took too long, or was done already. Start again.")
        return bytes.fromhex(challenge)


def challenge_of(by: Principal, question: Question, *, lasting: bool) -> bytes:
    """Return what a key signs to approve `question`: unpredictable before it exists, and valid for it only."""
    what = "approve all under its rule" if lasting else "approve"
    return _over(
        what, question.id.encode(), question.digest.encode(), question.policy_version.encode(), by.person.encode()
    )


def _over(what: str, *parts: bytes) -> bytes:
    return hashlib.sha256(frame_parts("webmcp-gateway", what, *parts)).digest()


def _descriptors(keys: Sequence[SecurityKey]) -> list[PublicKeyCredentialDescriptor]:
    return [PublicKeyCredentialDescriptor(id=base64url_to_bytes(key.id)) for key in keys]


def _json(value: Json) -> str:
    if not isinstance(value, dict):
        raise _refusal("The key's response is missing.")
    return plain_json(value)


def _refusal(why: str) -> Refusal:
    return Refusal(Reason.APPROVAL_UNAVAILABLE, why)
