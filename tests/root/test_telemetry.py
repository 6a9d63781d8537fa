"""The metrics themselves: text for a scraper, and labels from a fixed set."""

from gateway.telemetry import Metrics, level, status_class


def test_a_reason_that_is_none_of_ours_is_other() -> None:
    """A reason from a plugin or a page never becomes a label."""
    metrics = Metrics()
    metrics.count_refusal("cart", "site", "rate-limited")
    metrics.count_refusal("cart", "site", "made up 17")
    text = metrics.render().decode()
    assert 'reason="rate-limited"} 1.0' in text
    assert 'reason="other"} 1.0' in text
    assert "made up" not in text


def test_gauges_are_looked_at_and_forget() -> None:
    """A gauge shows the current value, not former ones."""
    metrics = Metrics()
    there: dict[tuple[str, ...], float] = {("cart",): 2.0}
    metrics.look(lambda: level(metrics.views, there))
    assert 'views{app="cart"} 2.0' in metrics.render().decode()
    there.clear()
    assert 'views{app="cart"}' not in metrics.render().decode()


def test_two_gateways_share_nothing() -> None:
    """Each has a separate registry."""
    one, other = Metrics(), Metrics()
    one.reloads.labels("taken").inc()
    assert 'result="taken"' not in other.render().decode()


def test_status_classes() -> None:
    """For any status of a backend there are six classes."""
    assert [status_class(code) for code in (100, 204, 599, 600, 0, -1)] == [
        "1xx",
        "2xx",
        "5xx",
        "other",
        "other",
        "other",
    ]


def test_what_is_counted_cheaply_is_told_like_the_rest() -> None:
    """A counter with its total, a histogram with its cumulative buckets."""
    metrics = Metrics()
    metrics.journal_lines.add("http", "outcome")
    metrics.journal_lines.add("http", "outcome")
    for seconds in (0.0005, 0.001, 0.002, 1000.0):
        metrics.request_seconds.add(seconds, "http", "cart")
    text = metrics.render().decode()
    assert 'webmcp_gateway_journal_lines_total{kind="http",phase="outcome"} 2.0' in text
    assert 'request_seconds_bucket{app="cart",kind="http",le="0.001"} 2.0' in text
    assert 'request_seconds_bucket{app="cart",kind="http",le="0.0025"} 3.0' in text
    assert 'request_seconds_bucket{app="cart",kind="http",le="+Inf"} 4.0' in text
    assert 'request_seconds_count{app="cart",kind="http"} 4.0' in text
    assert 'request_seconds_sum{app="cart",kind="http"} 1000.0035' in text
