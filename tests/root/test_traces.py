"""Trace context: read from callers, and passed on."""

from __future__ import annotations

import pytest

from gateway.traces import Trace, Tracer, continue_trace, current, read_trace

ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{ID}-{SPAN}-01"


def test_a_trace_is_read_and_written() -> None:
    """W3C Trace Context, 3.2."""
    found = read_trace(GOOD, "vendor=1")
    assert found == Trace(ID, SPAN, True, "vendor=1")
    assert found is not None
    assert found.headers() == (("traceparent", GOOD), ("tracestate", "vendor=1"))


@pytest.mark.parametrize(
    "said",
    [
        "",
        None,
        7,
        {"a": 1},
        GOOD.upper(),
        GOOD + "-more",
        f"ff-{ID}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{ID}-{'0' * 16}-01",
        f"00-{ID}-{SPAN}-1",
        f"00-{ID}-{SPAN}-01\r\nx: y",
        f"00-{ID}é-{SPAN}-01",
        "0" * 100_000,
    ],
)
def test_what_is_said_badly_is_nothing(said: object) -> None:
    """A new trace begins instead."""
    assert read_trace(said) is None


@pytest.mark.parametrize("state", ["x" * 513, "a=\r\nb", "é", 7])
def test_a_state_that_is_none_is_left_out(state: object) -> None:
    """The trace itself stays."""
    assert read_trace(GOOD, state) == Trace(ID, SPAN, True)


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    """W3C Trace Context, 3.2.4: higher versions may append fields."""
    assert read_trace(f"cc-{ID}-{SPAN}-01-what-comes") == Trace(ID, SPAN, True)


def test_what_runs_within_belongs_to_the_trace() -> None:
    """And before and after it there is none."""
    assert current() is None
    with continue_trace({"traceparent": GOOD}):
        assert current() == Trace(ID, SPAN, True)
    assert current() is None
    with continue_trace({"traceparent": "nonsense"}), continue_trace(None):
        assert current() is None


def test_there_is_a_trace_though_nobody_collects_spans() -> None:
    """Its ids are new below those of the caller."""
    tracer = Tracer()
    root = tracer.start("http", None)
    below = tracer.start("http", Trace(ID, SPAN, True, "vendor=1"))
    assert len(root.trace.id) == 32
    assert (below.trace.id, below.trace.sampled, below.trace.state) == (ID, True, "vendor=1")
    assert below.trace.span != SPAN
    assert below.going_out("send") == below.trace
    below.end(failed=False)
