"""A change freeze: while the file named by WEBMCP_GATEWAY_FREEZE exists, unsafe requests are refused.

The file's first line is the reason for callers. Each refused attempt is logged with its caller.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from gateway.hookspecs import hookimpl
from gateway.model import AuditRecord, Caller, CanonicalRequest

SAFE = {"GET", "HEAD", "OPTIONS"}

NAMES = {__name__, Path(__file__).name}
"""The names by which `plugins` of gateway.yaml can load this plugin; a refusal begins with its plugin's."""

log = logging.getLogger("webmcp_gateway.change_freeze")


@hookimpl
def check_request(request: CanonicalRequest, caller: Caller) -> str | None:
    """Refuse an unsafe method during the freeze."""
    freeze = os.environ.get("WEBMCP_GATEWAY_FREEZE")
    if request.method in SAFE or freeze is None or not Path(freeze).exists():
        return None
    lines = Path(freeze).read_text("utf-8").splitlines()
    return f"changes are frozen: {lines[0] if lines else 'no reason is given'}"


@hookimpl
async def audit_record(record: AuditRecord) -> None:
    """Log a request that this plugin refused; others' refusals are theirs to log."""
    refused = record.phase == "outcome" and record.fields.get("reason") == "plugin-refused"
    if refused and str(record.fields.get("detail")).partition(": ")[0] in NAMES:
        log.warning("stopped %(method)s %(url)s of %(principal)s (%(initiator)s)", dict(record.fields))
