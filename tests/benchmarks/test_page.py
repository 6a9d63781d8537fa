"""For how long a model's call was held up by threads at work, as the benchmark in a page tells it."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.page.busy import Call, Trace

THREADS = {"host": 1, "proxy": 2, "page": 3}
MARKS = [(10, "host:arrives"), (12, "proxy:call"), (13, "page:call"), (14, "proxy:answer"), (16, "host:answer")]


def traced(folder: Path, marks: list[tuple[int, str]], tasks: list[tuple[str, int, int, int]]) -> Trace:
    """The trace of a call that begins at 0 ms; a task is its frame, begin, end, and the processor's time in it."""
    events: list[dict[str, Any]] = [
        {"name": f"busy:{name}", "ph": "I", "ts": at * 1000, "pid": 1, "tid": THREADS[name.split(":")[0]]}
        for at, name in marks
    ]
    for frame, began, ended, worked in tasks:
        times = {"ts": began * 1000, "dur": (ended - began) * 1000, "tdur": worked * 1000}
        events.append({"name": "ThreadControllerImpl::RunTask", "ph": "X", "pid": 1, "tid": THREADS[frame], **times})
    file = folder / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}), "utf-8")
    return Trace.read(file)


@pytest.mark.parametrize(
    ("task", "busy"),
    [
        (("host", 2, 8, 6), 6.0),  # it stood before the call
        (("host", 2, 8, 1), 1.0),  # the rest of it waited for a processor itself
        (("host", 8, 12, 4), 4.0),  # a part before the call arrived, a part before it was handed on
        (("page", 2, 8, 6), 0.0),  # the call was elsewhere
        (("proxy", 14, 20, 3), 1.0),  # what came after the answer had passed held up nothing
        (("page", 12, 14, 2), 2.0),
    ],
)
def test_work_counts_where_the_call_has_to_get_through(
    tmp_path: Path, task: tuple[str, int, int, int], busy: float
) -> None:
    """And only the processor's time of it."""
    assert traced(tmp_path, MARKS, [task]).busy(Call(0, 20, 0)) == busy


def test_the_gateway_counts_all_the_time(tmp_path: Path) -> None:
    """Up to what the call took."""
    trace = traced(tmp_path, MARKS, [("host", 2, 8, 6)])
    assert [trace.busy(Call(0, 20, gateway)) for gateway in (5, 50)] == [11.0, 20]


def test_a_call_that_left_no_marks_had_to_wait_for_all_work(tmp_path: Path) -> None:
    """Nothing is left out because it could not be seen."""
    marks = [*MARKS[:2], (30, "page:here")]
    trace = traced(tmp_path, marks, [("host", 2, 8, 6), ("proxy", 1, 3, 1)])
    assert trace.busy(Call(0, 20, 1)) == 8.0


def test_a_frame_of_which_nothing_is_known_is_an_error(tmp_path: Path) -> None:
    """Its work would be left out."""
    with pytest.raises(BenchmarkError, match="nothing of page"):
        traced(tmp_path, MARKS[:2], [])
