"""How long a model's call was held up by what our own threads did, as far as the processor's time tells it."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.errors import BenchmarkError

CATEGORIES = ["toplevel", "blink.user_timing"]
"""What Chromium is asked to trace: each task of a thread, with the processor's time that it took, and our marks."""

MARKS = """
(() => {
  const where = window === top ? "host" : parent === top ? "proxy" : "page";
  const mark = (what) => performance.mark(`busy:${where}:${what}`);
  addEventListener("busy", () => mark("here"));
  addEventListener("message", ({ data }) => {
    if (data?.channel !== "mcp-iframe" || typeof data.payload !== "object") return;
    mark(data.direction === "client-to-server" ? "call" : "answer");
  }, true);
  if (where !== "host") return;
  const Plain = WebSocket;
  window.WebSocket = class extends Plain {
    constructor(...given) {
      super(...given);
      this.addEventListener("message", ({ data }) => String(data).includes('"webmcp"') && mark("arrives"));
    }
  };
})();
"""
"""A script for each frame, which marks where a model's call and its answer arrive, and at an event `busy` itself."""

FRAMES = ("host", "proxy", "page")

_WAY = (
    ("host:arrives", ("host",)),
    ("proxy:call", ("host", "proxy")),
    ("proxy:answer", ("proxy", "page")),
    ("host:answer", ("proxy", "host")),
)
"""The marks on a call's way, each with the frames whose threads it had to get through since the mark before."""


@dataclass(frozen=True, slots=True)
class Call:
    """A model's call: when it began and ended, and how long the gateway worked meanwhile; all in milliseconds."""

    began: float
    ended: float
    gateway: float

    @property
    def taken(self) -> float:
        """How long it took."""
        return self.ended - self.began


@dataclass(slots=True)
class Trace:
    """What Chromium traced, with times as `time.perf_counter` has them on Linux."""

    marks: list[tuple[float, str]] = field(default_factory=list)
    tasks: dict[str, list[tuple[float, float, float]]] = field(default_factory=dict)
    """By frame: when each task of its thread began and ended, and the processor's time that it took."""

    @classmethod
    def read(cls, file: Path) -> Trace:
        """The trace in `file`. Raises `BenchmarkError` where a frame has left no mark in it."""
        events = json.loads(file.read_bytes())["traceEvents"]
        found = [event for event in events if str(event["name"]).startswith("busy:")]
        marks = sorted((event["ts"] / 1000, event["name"].removeprefix("busy:")) for event in found)
        frames = {(event["pid"], event["tid"]): event["name"].split(":")[1] for event in found}
        if missing := set(FRAMES) - set(frames.values()):
            raise BenchmarkError(f"The trace says nothing of {', '.join(sorted(missing))}.")
        tasks: dict[str, list[tuple[float, float, float]]] = {}
        for event in _tasks(events):
            frame = frames.get((event["pid"], event["tid"]))
            if frame is not None:
                began = event["ts"] / 1000
                task = (began, began + event["dur"] / 1000, event.get("tdur", 0) / 1000)
                tasks.setdefault(frame, []).append(task)
        return cls(marks, {frame: sorted(listed) for frame, listed in tasks.items()})

    def busy(self, call: Call) -> float:
        """For how long, at most, `call` was held up because the threads on its way were at work, for it or for others.

        What it waited for a processor is not in it.
        """
        frames = sum(self._worked(frame, began, ended) for began, ended, among in self._way(call) for frame in among)
        return min(call.taken, call.gateway + frames)

    def _way(self, call: Call) -> Iterator[tuple[float, float, Sequence[str]]]:
        within = iter(self.marks[bisect_left(self.marks, (call.began, "")) : bisect_left(self.marks, (call.ended, ""))])
        times = [call.began, *(time for name, _ in _WAY for time in _next(within, name))]
        if len(times) <= len(_WAY):  # nothing tells where it was when
            yield call.began, call.ended, FRAMES
            return
        for (began, ended), (_, frames) in zip(pairwise(times), _WAY, strict=True):
            yield began, ended, frames

    def _worked(self, frame: str, began: float, ended: float) -> float:
        """The processor's time of that thread between these two times; of a task across one of them, its share."""
        total = 0.0
        for start, end, worked in self.tasks.get(frame, ()):
            if start < ended and end > began and end > start:
                total += worked * (min(end, ended) - max(start, began)) / (end - start)
        return total


def _next(marks: Iterator[tuple[float, str]], name: str) -> Sequence[float]:
    """When the next mark of that name was; nothing where there is none."""
    return next(([time] for time, found in marks if found == name), [])


def _tasks(events: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The tasks themselves, without what they consist of."""
    return (event for event in events if event["ph"] == "X" and event["name"] == "ThreadControllerImpl::RunTask")


def worked_ms(pid: int) -> float:
    """The processor's time of all threads that a process has now, in milliseconds (schedstat, in proc(5) of Linux)."""
    return sum(int(file.read_text("ascii").split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6
