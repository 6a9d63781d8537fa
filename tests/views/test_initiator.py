"""The initiator of a request: the model's taint, and how it ends."""

import pytest

from gateway.model import Initiator
from gateway.views.initiator import ATTESTED, CLAIMED, GRACE, LONGEST_GESTURE, Taint


def test_without_call_or_gesture_it_is_the_page() -> None:
    """A timer of the page is no person's click."""
    assert Taint().cause(100.0).initiator is Initiator.PAGE


def test_an_attested_gesture_makes_it_the_persons() -> None:
    """A report comes just before the call that it belongs to, and expires soon."""
    taint = Taint()
    taint.gesture_seen(0.1, 100.0)
    assert taint.cause(100.0).initiator is Initiator.PERSON
    assert taint.cause(103.0).initiator is Initiator.PAGE


def test_the_evidence_says_who_told_of_the_gesture() -> None:
    """A trusted host, or the view itself."""
    taint = Taint()
    taint.gesture_seen(0.1, 100.0)
    assert taint.cause(100.0).evidence == ATTESTED
    taint.gesture_seen(0.1, 110.0, CLAIMED)
    assert taint.cause(110.0).evidence == CLAIMED


def test_a_models_call_taints_while_it_runs_and_after() -> None:
    """The grace time alone does not end it."""
    taint = Taint()
    taint.call_started("call-1")
    assert taint.cause(100.0).id == "call-1"
    taint.call_ended("call-1", 101.0)
    assert taint.cause(101.0 + 10 * GRACE).initiator is Initiator.MODEL


def test_a_gesture_after_the_grace_ends_the_taint() -> None:
    """The person acts again."""
    taint = Taint()
    taint.call_started("call-1")
    taint.call_ended("call-1", 100.0)
    taint.gesture_seen(0.0, 100.0 + GRACE + 0.1)
    assert taint.cause(100.0 + GRACE + 0.1).initiator is Initiator.PERSON


def test_a_gesture_within_the_grace_does_not_end_the_taint() -> None:
    """The page's actions then may still be effects of the model's call."""
    taint = Taint()
    taint.call_started("call-1")
    taint.call_ended("call-1", 100.0)
    taint.gesture_seen(0.0, 100.0 + GRACE - 0.1)
    assert taint.cause(100.0 + GRACE - 0.1).initiator is Initiator.MODEL


def test_a_gesture_from_before_does_not_end_the_taint() -> None:
    """Browsers report a click for five seconds; one that may be older than the call's end does not count."""
    taint = Taint()
    taint.call_started("call-1")
    taint.call_ended("call-1", 100.0)
    taint.gesture_seen(4.0, 103.0)
    assert taint.cause(103.0).initiator is Initiator.MODEL


@pytest.mark.parametrize("pause", [0.5, 2.0, 4.9])
def test_clicks_without_a_pause_from_the_call_on_count_after_seven_seconds(pause: float) -> None:
    """A host reports a click of the last five seconds, not its time: its age is that of the first one at most.

    docs/policy.md describes this. Once the browser has forgotten the earlier click, the next one counts at once.
    """
    taint, began, ended = Taint(), 99.0, 100.0
    taint.call_started("call-1")
    taint.gesture_seen(0.0, began)
    taint.call_ended("call-1", ended)
    now, counts = began, []
    while now < ended + 15:
        now += pause
        taint.gesture_seen(min(now - began, LONGEST_GESTURE), now)
        counts.append((now, taint.cause(now).initiator))
    latest = ended + GRACE + LONGEST_GESTURE
    assert {initiator for at, initiator in counts if at <= latest} == {Initiator.MODEL}
    assert {initiator for at, initiator in counts if at > latest} == {Initiator.PERSON}
    paused = Taint()
    paused.call_started("call-2")
    paused.gesture_seen(0.0, began)
    paused.call_ended("call-2", ended)
    paused.gesture_seen(0.1, ended + GRACE + 0.2)
    assert paused.cause(ended + GRACE + 0.2).initiator is Initiator.PERSON


def test_a_view_that_is_trusted_knows_when_each_click_was() -> None:
    """The second of two clicks within five seconds counts at once, although the first was during the call."""
    taint = Taint()
    taint.call_started("call-1")
    taint.gesture_seen(0.0, 99.0, CLAIMED)
    taint.call_ended("call-1", 100.0)
    taint.gesture_seen(0.0, 100.0 + GRACE + 0.1, CLAIMED)
    assert taint.cause(100.0 + GRACE + 0.1).initiator is Initiator.PERSON


def test_a_gesture_during_a_call_does_not_end_the_taint() -> None:
    """The model may have provoked it."""
    taint = Taint()
    taint.call_started("call-1")
    taint.gesture_seen(0.0, 100.0)
    assert taint.cause(100.0).initiator is Initiator.MODEL


def test_two_calls_taint_until_both_have_ended() -> None:
    """The second call keeps the taint when the first has ended."""
    taint = Taint()
    taint.call_started("one")
    taint.call_started("two")
    taint.call_ended("one", 100.0)
    taint.gesture_seen(0.0, 110.0)
    assert taint.cause(110.0).initiator is Initiator.MODEL
    taint.call_ended("two", 111.0)
    taint.gesture_seen(0.0, 114.0)
    assert taint.cause(114.0).initiator is Initiator.PERSON


def test_a_report_of_the_page_only_raises() -> None:
    """A page may report itself as the model's."""
    taint = Taint()
    taint.gesture_seen(0.0, 100.0)
    taint.model_reported(100.0)
    assert taint.cause(100.0).initiator is Initiator.MODEL


def test_requests_of_one_gesture_share_its_id() -> None:
    """The timeline groups them under one click; the next click has another id."""
    taint = Taint()
    taint.gesture_seen(0.1, 100.0)
    first = taint.cause(100.0).id
    taint.gesture_seen(0.3, 100.2)
    assert taint.cause(100.2).id == first
    taint.gesture_seen(0.1, 108.0)
    assert taint.cause(108.0).id != first
