"""A loosened policy takes effect at run time only after a person has approved what it newly allows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from gateway.model import Caller
from gateway.policy import Policy
from gateway.policy.diff import Change, Turn
from gateway.ports.approvals import Approvals, ApprovalState, Ask, Parked

WAITS = "waits for a person's approval, on the console: until then the policy of before holds"
DECLINED = "a person declined what it opens: the policy of before holds until the file changes"


class Loosening:
    """Asks persons about loosened policies. Callers poll `verdict`; `changed` is called when one is approved."""

    def __init__(self, approvals: Approvals, changed: Callable[[], None]) -> None:
        self._approvals = approvals
        self._changed = changed
        self._asked: dict[tuple[str, str], Parked] = {}
        self._stop = approvals.watch(self._look)

    async def verdict(self, caller: Caller, old: Policy, new: Policy, changes: Sequence[Change]) -> str | None:
        """Return None if `new` may take effect now, else the reason. Raises `Refusal` if no question can be asked."""
        opened = [change for change in changes if change.turn is Turn.OPENED]
        if not opened:
            return None
        key = (caller.app, new.version)
        known = self._asked.get(key)
        if known is not None and known.state is ApprovalState.DECLINED:
            return DECLINED
        ask = _ask(old, new, opened)
        if known is not None and known.state is ApprovalState.APPROVED:
            del self._asked[key]
            await self._approvals.dispatch(known, ask.digest, ask.policy_version)
            return None
        pending = await self._approvals.park(ask, caller)
        self._asked[key] = self._approvals.find(pending.question.id, caller)
        return WAITS

    def _look(self) -> None:
        if any(parked.state is ApprovalState.APPROVED for parked in self._asked.values()):
            self._changed()


def _ask(old: Policy, new: Policy, opened: Sequence[Change]) -> Ask:
    lines = [f"{change.kind} {' '.join(change.subjects)}: {change.detail}" for change in opened]
    body = "\n".join(lines).encode()
    digest = hashlib.sha256(b"\n".join((b"policy", old.version.encode(), new.version.encode(), body))).hexdigest()
    things = "1 thing" if len(opened) == 1 else f"{len(opened)} things"
    return Ask(
        message=f"Let the changed policy take effect? It opens {things}.",
        method="policy",
        target=new.file,
        digest=digest,
        policy_version=old.version,
        body=body,
    )
