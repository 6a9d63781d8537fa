"""Limits and quotas count for the right caller, in the right window."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.model import LOCAL, Caller, Door, Initiator
from gateway.policy import Per, Quota, ReportMode, Window

PAGE = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "", view="v1", proven=True)
LAST = datetime(2028, 2, 29, 23, 59, 58, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("window", "shown"), [(Window.HOUR, "2028-02-29T23"), (Window.DAY, "2028-02-29"), (Window.MONTH, "2028-02")]
)
def test_windows(window: Window, shown: str) -> None:
    """A window has a UTC name, and ends with the hour, day or month."""
    quota = Quota(5, window, Per.PRINCIPAL, "POST /x")
    assert quota.key(PAGE, LAST).endswith("\n" + shown)
    assert quota.resets(LAST) == 2
    assert quota.key(PAGE, LAST + 2) != quota.key(PAGE, LAST + 1) == quota.key(PAGE, LAST)


def test_whose_requests_count_together() -> None:
    """Separate buckets by app, rule and subject; per view without a proven view counts per principal."""
    view, principal, app = (Quota(5, Window.DAY, per) for per in (Per.VIEW, Per.PRINCIPAL, Per.APP))
    ann = structs.replace(PAGE, principal=replace(LOCAL, subject="ann"))
    assert view.key(PAGE, 0) != view.key(structs.replace(PAGE, view="v2"), 0)
    assert view.key(structs.replace(PAGE, proven=False), 0) == principal.key(PAGE, 0)
    assert principal.key(PAGE, 0) != principal.key(ann, 0)
    assert app.key(PAGE, 0) == app.key(ann, 0) != app.key(structs.replace(PAGE, app="other"), 0)
    assert view.key(PAGE, 0) != replace(view, scope="x").key(PAGE, 0)


@given(st.sampled_from(list(Window)), st.integers(0, 4_000_000_000))
def test_windows_follow_each_other(window: Window, now: int) -> None:
    """The end of a window is the first moment of the next."""
    quota = Quota(1, window, Per.APP)
    end = quota.ends(now)
    assert 0 < quota.resets(now) <= 31 * 86400
    assert quota.key(PAGE, end - 1) == quota.key(PAGE, now) != quota.key(PAGE, end)


@pytest.mark.parametrize(("left", "active"), [(1, True), (30 * 86400, True), (30 * 86400 + 1, False), (0, False)])
def test_report_mode_ends(left: float, active: bool) -> None:
    """Report mode is active for the thirty days before its end, and never without a time."""
    report = ReportMode("2026-12-31", 1_800_000_000)
    assert report.active(1_800_000_000 - left) is active
    assert not report.active(None)
