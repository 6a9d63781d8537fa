"""Hot reload: the files of the configuration are watched, and what can change while the gateway runs takes effect."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from gateway.config import App, Config, Kind, Notice, Notices, Reading, Watch, restart_problems
from gateway.errors import Problem, Refusal, StartError
from gateway.exchange.record import Record, Recorder
from gateway.model import Caller, Door, Initiator, Json, Principal
from gateway.policy import Policy
from gateway.policy.diff import Change, Turn, diff

T = TypeVar("T")

LOOK = 1.0
"""Seconds between two looks at the files; a change is taken when it has rested for one."""

AGAIN = 5.0
"""Seconds after which what could not be taken is read again: a file that it needs may have come."""

SHOWN = 100
"""Changes of one policy that stand in the record."""

GATEWAY = Principal(issuer="gateway", client="gateway", subject="reload")
"""Who changes a policy, as the record says: the file alone does not tell who wrote it."""

log = logging.getLogger(__name__)


class Current(Mapping[str, T], Generic[T]):
    """What there is of each app now. Rooms hold this and read it anew for each call; it is replaced all at once."""

    def __init__(self, content: Mapping[str, T]) -> None:
        self._content = content

    def replace(self, content: Mapping[str, T]) -> None:
        """From now on this is what there is; who took something out before keeps that to its end."""
        self._content = content

    def __getitem__(self, key: str) -> T:
        return self._content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


class Reloader:
    """Keeps the running configuration the one of its files.

    `reread` reads them again. `take` puts new apps into effect at once; where it raises `StartError` nothing changed.
    """

    def __init__(
        self,
        config: Config,
        *,
        reread: Callable[[], Reading],
        take: Callable[[Mapping[str, App]], None],
        notices: Notices,
        recorder: Recorder,
    ) -> None:
        self._running = config
        self._reread = reread
        self._take = take
        self._notices = notices
        self._recorder = recorder
        self._watch = Watch(_files(config))
        self._asked = asyncio.Event()
        self._problems: tuple[Notice, ...] = ()
        self._next = 0.0

    def at_once(self) -> None:
        """Read the files now, as after SIGHUP."""
        self._asked.set()

    async def run(self) -> None:
        """Look at the files every second, until cancelled."""
        self._say()
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), LOOK)
            changed = self._watch.look()
            broken = any(notice.kind is Kind.BROKEN for notice in self._problems)
            due = broken and time.monotonic() >= self._next
            if changed or due or self._asked.is_set():
                self._asked.clear()
                await self.read()
            self._say()  # report mode ends by itself

    async def read(self) -> None:
        """Read the files, and take what can be taken of them. What changes while they are read is read next time."""
        stamps = self._watch.stamps()
        reading = await asyncio.to_thread(self._reread)
        if self._watch.stamps() != stamps:
            self.at_once()
            return
        self._next = time.monotonic() + AGAIN
        problems = [Notice(Kind.BROKEN, problem) for problem in reading.problems]
        if reading.config is not None:
            problems += await self._compare(reading.config, reading)
        self._problems = tuple(problems)
        named = {Path(notice.problem.file) for notice in problems}
        self._watch.took(stamps, {*_files(self._running), *_files(reading.config or self._running), *named})
        self._say()

    async def _compare(self, found: Config, reading: Reading) -> list[Notice]:
        """Take the apps that can be taken; what is to be said of the rest."""
        notices = [Notice(Kind.RESTART, problem) for problem in self._restarts(found, reading)]
        old = self._running.apps
        apps = dict(old)
        for name in old.keys() & found.apps.keys():
            missing = self._needs_restart(found.apps[name])
            if missing is None:
                apps[name] = _succeeding(old[name], found.apps[name])
            else:
                notices.append(Notice(Kind.RESTART, missing))
        try:
            await self._put(apps)
        except (StartError, Refusal) as error:
            notices.append(Notice(Kind.BROKEN, Problem(reading.file, 1, 1, f"not taken: {error}")))
        return notices

    def _restarts(self, found: Config, reading: Reading) -> Sequence[Problem]:
        """What waits for a restart. An app whose policy is broken is not gone."""
        kept = {name: app for name, app in self._running.apps.items() if name in reading.broken}
        return restart_problems(self._running, replace(found, apps={**kept, **found.apps}), reading.file)

    def _needs_restart(self, app: App) -> Problem | None:
        """Whether a policy names a credential that is read at the start alone."""
        for backend in app.policy.backends.values():
            if backend.credential is not None and backend.credential not in self._running.credentials:
                message = f'the credential "{backend.credential}" is new: this policy takes effect at the next start'
                return Problem(app.policy.file, 1, 1, message)
        return None

    async def _put(self, apps: Mapping[str, App]) -> None:
        """Write the record, then take the apps. A policy that opens something is not taken without a record."""
        old = self._running.apps
        if apps == old:
            return
        renewed = [(old[name].policy, app) for name, app in apps.items() if app.policy is not old[name].policy]
        changes = await asyncio.to_thread(lambda: [diff(before, app.policy) for before, app in renewed])
        records: list[Record] = []
        try:
            for (before, app), changed in zip(renewed, changes, strict=True):
                opens = any(change.turn is Turn.OPENED for change in changed)
                record = self._recorder.start("policy", _caller(app.id), safe=not opens)
                record.note(**_told(before, app.policy, changed))
                await record.open()
                records.append(record)
            self._take(apps)
        except (StartError, Refusal) as error:
            for record in records:
                await record.close(status=500, detail=str(error))
            raise
        self._running = replace(self._running, apps=apps)
        for record in records:
            await record.close(status=200)
        for _, app in renewed:
            log.warning("app %s: %s is in effect, version %s", app.id, app.policy.file, app.policy.version)

    def _say(self) -> None:
        notices = [*self._problems, *_reports(self._running, time.time())]
        if not self._notices.say(notices):
            return
        for notice in notices:
            if notice.kind is not Kind.REPORT:
                log.warning("%s", notice.problem)


def _succeeding(old: App, new: App) -> App:
    """The app as it can run now: what is packed at the start stays, and an unchanged policy is the same object."""
    same = (old.policy.file, old.policy.version) == (new.policy.file, new.policy.version)
    return replace(new, source=old.source, title=old.title, policy=old.policy if same else new.policy)


def _files(config: Config) -> list[Path]:
    """Every file that a configuration was read from, but for those of secrets."""
    return [config.path, *(Path(source) for app in config.apps.values() for source in app.policy.sources)]


def _reports(config: Config, now: float) -> Iterator[Notice]:
    for app in config.apps.values():
        mode = app.policy.mode
        if mode is not None and mode.active(now):
            message = f"{app.title}: report mode until {mode.date}: what no rule allows is let through"
            yield Notice(Kind.REPORT, Problem(app.policy.file, 1, 1, message))


def _caller(app: str) -> Caller:
    return Caller(GATEWAY, app, Door.SITE, Initiator.PAGE, "file")


def _told(old: Policy, new: Policy, changes: Sequence[Change]) -> dict[str, Json]:
    """The fields of the record of a change."""
    listed: list[Json] = [
        {"turn": change.turn, "kind": change.kind, "subjects": list(change.subjects[:SHOWN]), "detail": change.detail}
        for change in changes[:SHOWN]
    ]
    opened = sum(change.turn is Turn.OPENED for change in changes)
    return {
        "door": None,
        "initiator": None,
        "method": "policy",
        "url": new.file,
        "policy_version": new.version,
        "policy_before": old.version,
        "opened": opened,
        "changes": listed,
        "message": f"{len(changes)} changes, {opened} of them open something",
    }
