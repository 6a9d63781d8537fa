"""The plugin contract: every hook a plugin may implement, on one page.

A plugin is a Python module named in `plugins:` of gateway.yaml. It marks its functions with `@hookimpl`; each may be
plain or `async`, but for those that register. Plugins run in the order in which the configuration names them. A hook
that raises, or takes longer than five seconds (`ask_approval` may), refuses what it was asked about and is named in the
answer; a plugin cannot allow what the policy denies. A marked function whose name is no hook stops the start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import pluggy

from gateway.credentials import Tokens
from gateway.model import AuditRecord, Backend, Caller, CanonicalRequest, Json, Question

PROJECT = "webmcp_gateway"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

BackendFactory = Callable[[str, Mapping[str, Json]], Backend]
"""Makes a backend from its name in the policy and the other keys that stand there. `ValueError` says what is wrong."""

CredentialFactory = Callable[[str, Mapping[str, object]], Tokens]
"""Makes a credential from its name and the other keys that stand there, secrets as `Secret`. `ValueError` says what is
wrong."""


@hookspec
def register_backend_types() -> Mapping[str, BackendFactory]:  # type: ignore[empty-body]  # a specification has no body
    """Types that a policy may name as `backends.<name>.type`. Called once, at the start; not awaited."""


@hookspec
def register_credential_types() -> Mapping[str, CredentialFactory]:  # type: ignore[empty-body]  # a specification has no body
    """Types that gateway.yaml may name as `credentials.<name>.type`. Called once, at the start; not awaited."""


@hookspec
def resolve_secret(reference: str) -> Awaitable[str | None] | str | None:
    """The secret behind `${plugin:reference}`, None where it is another plugin's. Asked once, at the start."""


@hookspec
def check_request(request: CanonicalRequest, caller: Caller) -> Awaitable[str | None] | str | None:
    """Look at a request that the policy allows, before it is authenticated. A text refuses it and says why."""


@hookspec
def ask_approval(question: Question) -> Awaitable[bool | None] | bool | None:
    """Ask a person, elsewhere, where `approvals.ask` names `plugin`. True approves, False declines, None is no answer.

    It may take as long as the question is open, and is cancelled when that is over. An error is no answer.
    """


@hookspec
def audit_record(record: AuditRecord) -> Awaitable[None] | None:
    """Receive one line of the record, after it was written. An error at an intent refuses the request."""
