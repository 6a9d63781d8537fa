"""The exceptions of the gateway.

GatewayError
├── DocumentError    an unusable configuration or policy file; carries every problem found
├── StartError       the gateway cannot start as it is configured
├── Unidentified     the caller is not authenticated
├── Refusal          an exchange or a tool call ends, with a reason for its caller
│   ├── GrantEnded   a person's grant is no longer valid: they must connect again
│   ├── OwnerGone    the process that had a live object has ended, and has not received the request
│   └── ViewMoves    a model's call has not run, because its view moves to another process
└── MuxError         a frame that breaks the bridge protocol; ends that connection

OSError
├── DatabaseUnavailable    the database does not answer, or not as it should
└── RedisUnavailable       the same of Redis
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

NOT_SERVED: Final = "This app is no longer served here."
"""Refuses calls for an app that was removed, and those of callers who may not use it."""


class Reason(StrEnum):
    """The reason why the gateway answered instead of the backend: the header `gateway-reason` and the audit field."""

    BAD_REQUEST = "bad-request"
    CREDENTIAL_NEEDED = "credential-needed"
    POLICY_DENIED = "policy-denied"
    PLUGIN_REFUSED = "plugin-refused"
    VIEW_UNPROVEN = "view-unproven"
    VIEW_MOVED = "view-moved"
    APPROVAL_DECLINED = "approval-declined"
    APPROVAL_EXPIRED = "approval-expired"
    APPROVAL_UNAVAILABLE = "approval-unavailable"
    IDEMPOTENCY_CONFLICT = "idempotency-conflict"
    REQUEST_TOO_LARGE = "request-too-large"
    RATE_LIMITED = "rate-limited"
    QUOTA_EXCEEDED = "quota-exceeded"
    BACKEND_UNREACHABLE = "backend-unreachable"
    BACKEND_PROTOCOL = "backend-protocol"
    RESPONSE_TOO_LARGE = "response-too-large"
    REDIRECT_DENIED = "redirect-denied"
    REDIRECT_BROKEN = "redirect-broken"
    ADDRESS_DENIED = "address-denied"
    CREDENTIAL_FAILED = "credential-failed"
    BACKEND_UNAVAILABLE = "backend-unavailable"
    AUDIT_UNAVAILABLE = "audit-unavailable"
    STATE_UNAVAILABLE = "state-unavailable"
    CONDITION_LIMIT = "condition-limit"
    NO_HOST = "no-host"
    CONNECTION_LOST = "connection-lost"
    BACKEND_TIMEOUT = "backend-timeout"
    REPORTED_TO_MODEL = "reported-to-model"
    INTERNAL = "internal"
    CANCELLED = "cancelled"
    NOT_AN_APP = "not-an-app"
    STOPPING = "gateway-stopping"


STATUS: dict[Reason, int] = {
    Reason.BAD_REQUEST: 400,
    Reason.CREDENTIAL_NEEDED: 401,
    Reason.POLICY_DENIED: 403,
    Reason.PLUGIN_REFUSED: 403,
    Reason.VIEW_UNPROVEN: 403,
    Reason.VIEW_MOVED: 409,
    Reason.APPROVAL_DECLINED: 403,
    Reason.APPROVAL_EXPIRED: 403,
    Reason.APPROVAL_UNAVAILABLE: 403,
    Reason.IDEMPOTENCY_CONFLICT: 409,
    Reason.REQUEST_TOO_LARGE: 413,
    Reason.RATE_LIMITED: 429,
    Reason.QUOTA_EXCEEDED: 429,
    Reason.BACKEND_UNREACHABLE: 502,
    Reason.BACKEND_PROTOCOL: 502,
    Reason.RESPONSE_TOO_LARGE: 502,
    Reason.REDIRECT_DENIED: 502,
    Reason.REDIRECT_BROKEN: 502,
    Reason.ADDRESS_DENIED: 502,
    Reason.CREDENTIAL_FAILED: 502,
    Reason.BACKEND_UNAVAILABLE: 503,
    Reason.AUDIT_UNAVAILABLE: 503,
    Reason.STATE_UNAVAILABLE: 503,
    Reason.CONDITION_LIMIT: 503,
    Reason.NO_HOST: 503,
    Reason.CONNECTION_LOST: 503,
    Reason.BACKEND_TIMEOUT: 504,
    Reason.REPORTED_TO_MODEL: 202,
    Reason.INTERNAL: 500,
    Reason.CANCELLED: 499,
    Reason.NOT_AN_APP: 403,
    Reason.STOPPING: 503,
}
"""The HTTP status for each reason."""

WORDS: dict[Reason, str] = {
    Reason.BAD_REQUEST: "The app requested this in a way that is not understood.",
    Reason.CREDENTIAL_NEEDED: "Your account has to be connected first.",
    Reason.POLICY_DENIED: "The app is not allowed to do this.",
    Reason.PLUGIN_REFUSED: "The app is not allowed to do this.",
    Reason.VIEW_UNPROVEN: "This view of the app is not known any more. Open the app again.",
    Reason.VIEW_MOVED: "The app lost its connection, and is connecting again. Nothing was sent.",
    Reason.APPROVAL_DECLINED: "This was declined.",
    Reason.APPROVAL_EXPIRED: "This was not approved in time, or has changed since. Try again.",
    Reason.APPROVAL_UNAVAILABLE: "This needs an approval, and no person can be asked for it now.",
    Reason.IDEMPOTENCY_CONFLICT: "This may have been done already. Check its result before you try again.",
    Reason.REQUEST_TOO_LARGE: "This is too large to be sent.",
    Reason.RATE_LIMITED: "This was too much at once. Try again in a moment.",
    Reason.QUOTA_EXCEEDED: "What may be done for now is used up. Try again later.",
    Reason.BACKEND_UNREACHABLE: "The app's server cannot be reached. Try again later.",
    Reason.BACKEND_PROTOCOL: "The app's server gave an answer that cannot be read.",
    Reason.RESPONSE_TOO_LARGE: "The answer is larger than what can be shown here.",
    Reason.REDIRECT_DENIED: "The app's server leads to where the app may not go.",
    Reason.REDIRECT_BROKEN: "The app's server leads nowhere.",
    Reason.ADDRESS_DENIED: "The app's server cannot be reached from here.",
    Reason.CREDENTIAL_FAILED: "The app cannot log in to its server. Try again later.",
    Reason.BACKEND_UNAVAILABLE: "The app's server is not available. Try again later.",
    Reason.AUDIT_UNAVAILABLE: "This cannot be recorded now, so it was not done. Try again later.",
    Reason.STATE_UNAVAILABLE: "This cannot be checked now, so it was not done. Try again later.",
    Reason.CONDITION_LIMIT: "This is more than what can be checked here.",
    Reason.NO_HOST: "The app cannot reach its server from here.",
    Reason.CONNECTION_LOST: "The connection of the app was lost. Open the app again.",
    Reason.BACKEND_TIMEOUT: "The app's server took too long to answer. Try again later.",
    Reason.REPORTED_TO_MODEL: "The assistant was asked to do this.",
    Reason.INTERNAL: "Something went wrong here. Try again later.",
    Reason.CANCELLED: "This was given up.",
    Reason.NOT_AN_APP: "This can only be done in the app.",
    Reason.STOPPING: "The service was restarted meanwhile. See whether this was done before you try again.",
}
"""The message for people for each reason, as apps show it; developers read the `detail` of the refusal."""


class GatewayError(Exception):
    """Any error that the gateway raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error in a file; `line` and `column` count from 1. `apps` are those that are not served because of it."""

    file: str
    line: int
    column: int
    message: str
    apps: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class DocumentError(GatewayError):
    """An unusable configuration or policy file; `problems` name each place and the remedy."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class StartError(GatewayError):
    """The gateway cannot start as it is configured; the message names the remedy."""


class Unidentified(GatewayError):
    """The caller is not authenticated; `error` is the code of RFC 6750, 3.1, empty if no credential was sent."""

    def __init__(self, detail: str, error: str = "invalid_token", *, status: int = 401) -> None:
        self.detail = detail
        self.error = error
        self.status = status
        super().__init__(detail)


LONGEST: Final = 4000
"""Maximum length in characters of `detail` and `words` of a refusal."""


class Refusal(GatewayError):
    """The gateway ends an exchange or a tool call; the caller gets `problem+json` with `gateway-reason`.

    `detail` is for developers; `words` replace the reason's message for people.
    """

    def __init__(
        self,
        reason: Reason,
        detail: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        status: int | None = None,
        connect_url: str | None = None,
        words: str | None = None,
    ) -> None:
        self.reason = reason
        self.words = (words or WORDS[reason])[:LONGEST]
        self.connect_url = connect_url
        self.detail = detail = detail[:LONGEST]
        self.headers = tuple(headers)
        self.status = status or STATUS[reason]
        super().__init__(f"{reason}: {detail}")


class GrantEnded(Refusal):
    """A person's grant at an authorization server is no longer valid: they must connect again."""

    def __init__(self, detail: str) -> None:
        super().__init__(Reason.CREDENTIAL_NEEDED, detail)


class OwnerGone(Refusal):
    """The process that had a live object has ended, and has not received the request: this one may go on with it."""

    def __init__(self) -> None:
        super().__init__(Reason.CONNECTION_LOST, "The process of the gateway that had this is gone. Try again.")


class ViewMoves(Refusal):
    """A model's call has not run, because its view moves to another process of the gateway: it may be sent there."""

    def __init__(self) -> None:
        super().__init__(
            Reason.CONNECTION_LOST,
            "This view moves from one process of the gateway to another. The tool has not run. Try again in a moment.",
        )


class MuxError(GatewayError):
    """A frame that breaks the bridge protocol; `code` is sent to the peer before the connection closes."""

    def __init__(self, code: str, detail: str) -> None:
        self.code = code
        self.detail = detail
        super().__init__(f"{code}: {detail}")


class DatabaseUnavailable(OSError):
    """The database does not answer, or fails: requests that need it get 503."""


class RedisUnavailable(OSError):
    """Redis cannot be used now; the message says why."""


class LoginTooOld(Exception):
    """The person must log in again before adding a first security key."""
