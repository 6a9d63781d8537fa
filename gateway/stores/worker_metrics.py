"""The metrics of all workers of one machine: each writes its own to a file, and any of them answers with the sum."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct
from prometheus_client import Metric

from gateway.telemetry import Metrics, text_of

EVERY: Final = 2.0
"""Seconds between two writings: a scrape has values of other workers that are so old at most."""

GONE: Final = 10.0
"""Seconds after the last writing from which a worker counts as gone: its gauges are left out."""

Labels: TypeAlias = tuple[tuple[str, str], ...]

log = logging.getLogger(__name__)


class _Sample(Struct, frozen=True, array_like=True):
    name: str
    labels: Labels
    value: float


class _Family(Struct, frozen=True, array_like=True):
    name: str
    meaning: str
    kind: str
    samples: tuple[_Sample, ...]


class _WrittenMetrics(Struct, frozen=True):
    """The figures that a worker has written; `time` is in seconds since the start of the system."""

    time: float
    families: tuple[_Family, ...]


_READER: Final = msgspec.msgpack.Decoder(_WrittenMetrics)


class WorkerMetrics:
    """The metrics of the workers that share `folder`; `name` is this one's among them.

    Counters go on from those of an earlier process of that name. A value that was scraped is in the file before, so
    that no counter decreases when a worker is killed.
    """

    def __init__(self, folder: Path, name: str, metrics: Metrics) -> None:
        self._folder = folder
        self._path = folder / name
        self._metrics = metrics
        earlier = self._read(self._path)
        families = earlier.families if earlier is not None else ()
        self._before = tuple(family for family in families if family.kind != "gauge")

    def render(self) -> bytes:
        """Return the metrics of all workers in Prometheus' text format."""
        own = self.write()
        now = time.monotonic()
        families = [own]
        for path in sorted(self._folder.iterdir()):
            if path != self._path and path.suffix != ".new" and (other := self._read(path)) is not None:
                gone = now - other.time > GONE
                families.append([family for family in other.families if not gone or family.kind != "gauge"])
        together = self._combine(one for of_worker in families for one in of_worker)
        return text_of(_metric(family) for family in together)

    def write(self) -> Sequence[_Family]:
        """Write the metrics of this worker; return them."""
        current = [
            _Family(
                family.name,
                family.documentation,
                family.type,
                tuple(_Sample(one.name, tuple(one.labels.items()), one.value) for one in family.samples),
            )
            for family in self._metrics.collect()
        ]
        families = self._combine([*current, *self._before])
        new = self._path.with_suffix(".new")
        try:
            new.write_bytes(msgspec.msgpack.encode(_WrittenMetrics(time.monotonic(), tuple(families))))
            new.replace(self._path)
        except OSError as error:
            log.warning("the metrics of this worker are not written: %s", error)
        return families

    async def run(self) -> None:
        """Write the metrics again and again until cancelled, and once more then."""
        try:
            while True:
                self.write()
                await asyncio.sleep(EVERY)
        finally:
            self.write()

    def _read(self, path: Path) -> _WrittenMetrics | None:
        try:
            return _READER.decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            if not isinstance(error, FileNotFoundError):
                log.warning("the metrics in %s are left out: %s", path, error)
            return None

    def _combine(self, families: Iterable[_Family]) -> list[_Family]:
        """Make one family of those with the same name."""
        values: dict[str, tuple[_Family, dict[tuple[str, Labels], list[float]]]] = {}
        for family in families:
            _, samples = values.setdefault(family.name, (family, {}))
            for one in family.samples:
                samples.setdefault((one.name, one.labels), []).append(one.value)
        return [
            _Family(family.name, family.meaning, family.kind, tuple(self._samples(family, samples)))
            for family, samples in values.values()
        ]

    def _samples(self, family: _Family, samples: dict[tuple[str, Labels], list[float]]) -> Iterable[_Sample]:
        combine = self._metrics.combine.get(family.name, sum) if family.kind == "gauge" else sum
        for (name, labels), values in samples.items():
            yield _Sample(name, labels, min(values) if name.endswith("_created") else combine(values))


def _metric(family: _Family) -> Metric:
    metric = Metric(family.name, family.meaning, family.kind)
    for one in family.samples:
        metric.add_sample(one.name, dict(one.labels), one.value)
    return metric
