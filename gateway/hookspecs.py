"""The plugin contract: every hook that a plugin may implement.

A plugin is a Python module named in `plugins:` of gateway.yaml. It marks its functions with `@hookimpl`; each may be
plain or `async`, except those that register types. Plugins run in configuration order. A hook that raises, or takes
longer than five seconds (`ask_approval` may), refuses the call and is named in the answer; a plugin cannot allow what
the policy denies. A marked function whose name is not a hook stops the start.
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
"""Makes a backend from its name in the policy and its other keys. Raises `ValueError` if they are wrong."""

CredentialFactory = Callable[[str, Mapping[str, object]], Tokens]
"""Makes a credential from its name and its other keys, secrets as `Secret`. Raises `ValueError` if they are wrong."""


@hookspec
def register_backend_types() -> Mapping[str, BackendFactory]:  # type: ignore[empty-body]  # a specification has no body
    """Return types for `backends.<name>.type` of policies. Called once, at the start; not awaited."""


@hookspec
def register_credential_types() -> Mapping[str, CredentialFactory]:  # type: ignore[empty-body]  # a specification has no body
    """Return types for `credentials.<name>.type` of gateway.yaml. Called once, at the start; not awaited."""


@hookspec
def resolve_secret(reference: str) -> Awaitable[str | None] | str | None:
    """Return the secret of `${plugin:reference}`, or None if this plugin lacks it.

    Called at the start, and when a credential that names it changes.
    """


@hookspec
def check_request(request: CanonicalRequest, caller: Caller) -> Awaitable[str | None] | str | None:
    """Check a request that the policy allows, before it is authenticated. A returned text refuses it as the reason."""


@hookspec
def ask_approval(question: Question) -> Awaitable[bool | None] | bool | None:
    """Ask a person elsewhere, if `approvals.ask` names `plugin`: True approves, False declines, None is no answer.

    It may take as long as the question is open, and is cancelled when that is closed. An error is no answer.
    """


@hookspec
def audit_record(record: AuditRecord) -> Awaitable[None] | None:
    """Receive one line of the record, after it was written. An error at an intent refuses the request."""
