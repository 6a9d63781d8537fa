"""Hot reload: watches the files of the configuration, and replaces running apps and upstreams when they change."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gateway.assembly.approvals import ApprovalParts
from gateway.assembly.apps import Apps, EnteredContexts, Running, Serving, entitle
from gateway.callers.entitlements import Entitlements, widens
from gateway.config import (
    App,
    Config,
    Notice,
    NoticeKind,
    Notices,
    Reading,
    UpstreamSettings,
    Watch,
    files_to_watch,
    restart_problems,
    same_upstream,
)
from gateway.doors.bridge.bridge import BridgeDoor
from gateway.doors.events import Events
from gateway.doors.identify import Identify
from gateway.errors import DocumentError, Problem, Refusal, StartError
from gateway.exchange.approval_answers import Loosening
from gateway.exchange.record import Record, Recorder
from gateway.mcp.server import McpMount
from gateway.mcp.upstreams.merged import Merged
from gateway.mcp.upstreams.registry import Upstreams
from gateway.model import Caller, Initiator, Json, Principal
from gateway.policy import Policy, parse_policy
from gateway.policy.diff import Change, ChangeKind, Turn, diff
from gateway.ports.approvals import Approvals
from gateway.views.registry import Views

LOOK = 1.0
"""Seconds between checks of the files; a change is applied after it was stable for one such interval."""

AGAIN = 5.0
"""Seconds after which files with errors are read again: a missing file may have appeared."""

SHOWN = 100
"""Changes of one policy that one entry of the record lists."""

GATEWAY = Principal(issuer="gateway", client="gateway", subject="reload")
"""The recorded author of policy changes: the file does not show who wrote it."""

log = logging.getLogger(__name__)


class Reloader:
    """Keeps the running configuration equal to its files.

    `reread`: reads them again; without it nothing changes.
    `take`: replaces the apps all at once; changes nothing if it raises `StartError` or `DocumentError`.
    `take_upstreams`: replaces the upstreams.
    `approvals`: a person must first approve what a policy opens.
    """

    def __init__(
        self,
        config: Config,
        *,
        reread: Callable[[], Reading] | None,
        take: Callable[[Mapping[str, App]], Awaitable[None]],
        take_upstreams: Callable[[Mapping[str, UpstreamSettings]], Awaitable[None]],
        notices: Notices,
        recorder: Recorder,
        approvals: Approvals | None = None,
    ) -> None:
        self._running = config
        self._reread = reread
        self._take = take
        self._take_upstreams = take_upstreams
        self._notices = notices
        self._recorder = recorder
        self._watch = Watch(_files(config))
        self._requested = asyncio.Event()
        self._problems: tuple[Notice, ...] = ()
        self._warned = False
        self._next = 0.0
        self._loosening = Loosening(approvals, self.request_reload) if approvals is not None else None

    def request_reload(self) -> None:
        """Request that the files are read now, as after SIGHUP."""
        self._requested.set()

    async def run(self) -> None:
        """Check the files every second, until cancelled."""
        self._publish_notices()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._requested.wait()
            if self._reread is None:
                self._requested.clear()
                self._publish_notices()
                continue
            changed = self._watch.look()
            broken = any(notice.kind is NoticeKind.BROKEN for notice in self._problems)
            due = broken and time.monotonic() >= self._next
            if changed or due or self._requested.is_set():
                self._requested.clear()
                await self._read(self._reread)
            self._publish_notices()  # report mode ends by itself

    async def _read(self, reread: Callable[[], Reading]) -> None:
        """Read the files and apply what can be applied. If they change meanwhile they are read again."""
        stamps = self._watch.stamps()
        reading = await asyncio.to_thread(reread)
        if self._watch.stamps() != stamps:
            self.request_reload()
            return
        self._next = time.monotonic() + AGAIN
        problems = [Notice(NoticeKind.BROKEN, problem) for problem in reading.problems]
        if reading.config is not None:
            problems += await self._compare(reading.config, reading)
        self._problems = tuple(problems)
        broken = any(notice.kind is NoticeKind.BROKEN for notice in problems)
        self._recorder.metrics.reloads.labels("broken" if broken else "taken").inc()
        named = {Path(notice.problem.file) for notice in problems}
        self._watch.took(stamps, {*_files(self._running), *_files(reading.config or self._running), *named})
        self._publish_notices()

    async def _compare(self, found: Config, reading: Reading) -> list[Notice]:
        """Apply the upstreams and apps that can change now; return notices for the rest."""
        waiting = list(restart_problems(self._running, found, reading.file))
        refused = await self._compare_upstreams(found, reading, waiting)
        old = self._running.apps
        apps = {name: app for name, app in old.items() if name in reading.broken}
        for name, app in found.apps.items():
            missing = self._needs_restart(app)
            if missing is None:
                apps[name] = _succeeding(old.get(name), app)
            else:
                waiting.append(missing)
                apps |= {name: old[name]} if name in old else {}
        notices = [Notice(NoticeKind.RESTART, problem) for problem in waiting]
        notices += refused + await self._held_back(apps)
        return notices + await self._apply_all(apps, reading.file)

    async def _apply_all(self, apps: Mapping[str, App], file: str) -> list[Notice]:
        """Apply the apps; if one fails, each of the others separately. Return the refusals as notices.

        No app is removed while another one is refused: it may be the same app under a new name.
        """
        refused = await self._try_apply(apps, file)
        changed = {name: app for name, app in apps.items() if app != self._running.apps.get(name)}
        if not refused or len(changed) < 2:
            return refused
        each = [await self._try_apply({**self._running.apps, name: app}, file) for name, app in changed.items()]
        return [notice for notices in each for notice in notices]

    async def _try_apply(self, apps: Mapping[str, App], file: str) -> list[Notice]:
        """Apply the apps, and return a failure as notices."""
        try:
            await self._apply(apps)
        except (StartError, Refusal) as error:
            return [Notice(NoticeKind.BROKEN, Problem(file, 1, 1, f"not taken: {error}"))]
        except DocumentError as error:
            return [Notice(NoticeKind.BROKEN, problem) for problem in error.problems]
        return []

    async def _compare_upstreams(self, found: Config, reading: Reading, waiting: list[Problem]) -> list[Notice]:
        """Apply the upstreams that can change now; add to `waiting` those that need a restart."""
        old = self._running.upstreams
        taken: dict[str, UpstreamSettings] = {name: one for name, one in old.items() if name in reading.broken}
        for name, one in found.upstreams.items():
            before = old.get(name)
            if before is not None and same_upstream(before, one):
                taken[name] = before
                continue
            missing = self._upstream_waits(reading.file, before, one)
            if missing is None:
                taken[name] = one
            else:
                waiting.append(missing)
                taken |= {name: before} if before is not None else {}
        kept = any(name in reading.broken for name in old)  # its position in the broken file is unknown
        places = (*old, *found.upstreams) if kept else (*found.upstreams, *old)  # decides who keeps a name on `/mcp`
        taken = {name: taken[name] for name in dict.fromkeys(places) if name in taken}
        changed = [name for name in dict.fromkeys((*taken, *old)) if taken.get(name) is not old.get(name)]
        if not changed and list(taken) == list(old):
            return []
        try:
            await self._apply_upstreams(taken, changed)
        except Refusal as refusal:
            return [Notice(NoticeKind.BROKEN, Problem(reading.file, 1, 1, f"not taken: {refusal.detail}"))]
        return []

    def _upstream_waits(self, file: str, before: UpstreamSettings | None, now: UpstreamSettings) -> Problem | None:
        """Return why a changed upstream needs a restart; None if it does not."""
        if now.credential is not None and now.credential not in self._running.credentials:
            why = f'the credential "{now.credential}" is new'
        elif self._loosening is not None and (before is None or not _same_rules(before, now)):
            why = "approvals.presence is configured, and no person can approve the loosened policy here"
        else:
            return None
        return Problem(file, 1, 1, f"upstream {now.name}: {why}: it takes effect at the next start")

    async def _apply_upstreams(self, taken: Mapping[str, UpstreamSettings], changed: Sequence[str]) -> None:
        """Write the record, then apply the upstreams. Nothing is applied without a record."""
        old, records = self._running.upstreams, []
        for name in changed:
            before, now = old.get(name), taken.get(name)
            record = self._recorder.start("policy", _caller(name), safe=False)
            record.note(
                initiator=None,
                method="upstream",
                url=now.policy.file if now is not None and now.policy is not None else None,
                policy_version=now.policy.version if now is not None and now.policy is not None else None,
                policy_before=before.policy.version if before is not None and before.policy is not None else None,
                message="gone" if now is None else "new" if before is None else "changed",
            )
            await record.open()
            records.append(record)
        await self._take_upstreams(taken)
        self._running = replace(self._running, upstreams=taken)
        for record in records:
            await record.close(status=200)
        log.info("upstreams changed: %s", ", ".join(changed) or "their order")

    async def _held_back(self, apps: dict[str, App]) -> list[Notice]:
        """Remove from `apps` those that open something not yet approved; return notices for them."""
        if self._loosening is None:
            return []
        old, notices = self._running.apps, []
        for name, app in list(apps.items()):
            if name in old and _same_access(app, old[name]):
                continue
            before = _policy(old.get(name), name)
            changes = await asyncio.to_thread(diff, before, app.policy)
            changes = (*_access_changes(old.get(name), app), *changes)
            try:
                why = await self._loosening.verdict(_caller(name), before, app.policy, changes)
            except Refusal as refusal:
                why = refusal.detail
            if why is None:
                continue
            del apps[name]
            apps |= {name: old[name]} if name in old else {}
            notices.append(Notice(NoticeKind.BROKEN, Problem(app.policy.file, 1, 1, f"not taken: {why}")))
        return notices

    def _needs_restart(self, app: App) -> Problem | None:
        """Return a problem if a policy names a credential that is read only at the start."""
        for backend in app.policy.backends.values():
            if backend.credential is not None and backend.credential not in self._running.credentials:
                message = f'the credential "{backend.credential}" is new: this policy takes effect at the next start'
                return Problem(app.policy.file, 1, 1, message)
        return None

    async def _apply(self, apps: Mapping[str, App]) -> None:
        """Write the record, then apply the apps. A policy that opens something is not applied without a record."""
        old = self._running.apps
        if apps == old:
            return
        renewed = [
            (name, _policy(old.get(name), name), _policy(apps.get(name), name))
            for name in dict.fromkeys((*apps, *old))
            if name not in apps or name not in old or not _same_access(apps[name], old[name])
        ]
        changes = await asyncio.to_thread(
            lambda: [
                (*_access_changes(old.get(name), apps.get(name)), *diff(before, after))
                for name, before, after in renewed
            ]
        )
        records: list[Record] = []
        try:
            for (name, before, after), changed in zip(renewed, changes, strict=True):
                opens = any(change.turn is Turn.OPENED for change in changed)
                record = self._recorder.start("policy", _caller(name), safe=not opens)
                record.note(**_change_fields(before, after, changed))
                await record.open()
                records.append(record)
            await self._take(apps)
        except (StartError, DocumentError, Refusal) as error:
            for record in records:
                await record.close(status=500, detail=str(error))
            raise
        self._running = replace(self._running, apps=apps)
        for record in records:
            await record.close(status=200)
        for name, _, after in renewed:
            shown = f"{after.file} is in effect, version {after.version}" if name in apps else "is gone"
            log.info("app %s: %s", name, shown)

    def _publish_notices(self) -> None:
        """Publish the current problems and active report modes, and log them if they changed."""
        notices = [*self._problems, *_reports(self._running, time.time())]
        if not self._notices.say(notices):
            return
        wrong = [notice for notice in notices if notice.kind is not NoticeKind.REPORT]
        for notice in wrong:
            log.warning("%s", notice.problem)
        if any(notice.kind is NoticeKind.BROKEN for notice in wrong):
            log.warning("until this is corrected, the configuration and the policies from before stay in effect")
        if self._warned and not wrong:
            log.info("nothing is wrong any more: the files are in effect as they are")
        self._warned = bool(wrong)


def _same_rules(before: UpstreamSettings, now: UpstreamSettings) -> bool:
    """Return whether the offered and allowed tools are as before."""
    rules = [(one.include, one.exclude, one.policy and one.policy.version, one.target) for one in (before, now)]
    return rules[0] == rules[1] and before.command == now.command and not widens(before.access, now.access)


def _succeeding(old: App | None, new: App) -> App:
    """Return the app as it is to run: an unchanged policy stays the same object."""
    if old is None or (old.policy.file, old.policy.version) != (new.policy.file, new.policy.version):
        return new
    return replace(new, policy=old.policy)


def _policy(app: App | None, name: str) -> Policy:
    """Return the policy of an app; one that allows nothing if there is no app."""
    return app.policy if app is not None else parse_policy("version: 1\n", f"(no app {name})")


def _same_access(one: App, other: App) -> bool:
    return one.policy is other.policy and one.access == other.access


def _access_changes(old: App | None, new: App | None) -> tuple[Change, ...]:
    """Return the change of who may use an app that was served before, if it changes."""
    if old is None or new is None or old.access == new.access:
        return ()
    turn = Turn.OPENED if widens(old.access, new.access) else Turn.CLOSED
    shown = f"for callers with {new.access.shown}" if new.access is not None else "for everybody"
    return (Change(turn, ChangeKind.POLICY, (), f"access: {shown}"),)


def _files(config: Config) -> list[Path]:
    """Return every file of a configuration, except secrets and the unwatched files of apps."""
    apps = config.apps.values()
    policies = (Path(source) for app in apps for source in app.policy.sources)
    behind = (Path(source) for one in config.upstreams.values() if one.policy for source in one.policy.sources)
    pages = (path for app in apps if isinstance(app.source, Path) for path in files_to_watch(app.source))
    return [config.path, *policies, *behind, *pages]


def _reports(config: Config, now: float) -> Iterator[Notice]:
    for app in config.apps.values():
        mode = app.policy.mode
        if mode is not None and mode.active(now):
            message = f"{app.title}: report mode until {mode.date}: what no rule allows is let through"
            yield Notice(NoticeKind.REPORT, Problem(app.policy.file, 1, 1, message), app.id)


def _caller(app: str) -> Caller:
    return Caller(GATEWAY, app, None, Initiator.PAGE, "file")


def _change_fields(old: Policy, new: Policy, changes: Sequence[Change]) -> dict[str, Json]:
    """Return the fields of the record of a change."""
    listed: list[Json] = [
        {"turn": change.turn, "kind": change.kind, "subjects": list(change.subjects[:SHOWN]), "detail": change.detail}
        for change in changes[:SHOWN]
    ]
    opened = sum(change.turn is Turn.OPENED for change in changes)
    return {
        "initiator": None,
        "method": "policy",
        "url": new.file,
        "policy_version": new.version,
        "policy_before": old.version,
        "opened": opened,
        "changes": listed,
        "message": f"{len(changes)} changes, {opened} of them open something",
    }


class Changing:
    """Replaces running apps and upstreams, and voids what depended on them; `held` and `tasks` keep new faces open."""

    def __init__(
        self,
        apps: Apps,
        serving: Serving,
        upstreams: Upstreams,
        *,
        merged: Merged,
        everything: McpMount,
        approving: ApprovalParts,
        views: Views,
        events: Events,
        held: EnteredContexts,
        tasks: asyncio.TaskGroup,
        entitlements: Entitlements,
    ) -> None:
        self._entitlements = entitlements
        self._apps = apps
        self._serving = serving
        self._upstreams = upstreams
        self._merged = merged
        self._everything = everything
        self._approving = approving
        self._views = views
        self._events = events
        self._held = held
        self._tasks = tasks

    async def apps(self, configs: Mapping[str, App]) -> None:
        """Replace the apps, without an await between the updates of the registries.

        Raises `StartError` or `DocumentError` for unusable apps; nothing changed then.
        """
        apps = {id: await asyncio.to_thread(self._serving.of, app) for id, app in configs.items()}
        before = dict(self._apps)
        gone, new = before.keys() - apps.keys(), apps.keys() - before.keys()
        for id in new:
            await self._enter(apps[id].face)
        for id in gone:
            self._approving.void_outdated(id, "")
            for view in self._views.of(None, id):
                self._views.close(view)
        entitle(self._entitlements, configs, self._upstreams.specs)
        self._apps.replace(apps)
        for id, app in apps.items():
            self._renew(before.get(id), app)
        self._merged.forget(())
        self._everything.renew()
        self._events.apps_changed()
        for id in gone:
            before[id].face.drain()
            await self._held.leave(before[id].face)

    async def upstreams(self, specs: Mapping[str, UpstreamSettings]) -> None:
        """Replace the upstreams; unchanged ones keep their connections."""
        before = dict(self._upstreams.mounted)
        entitle(self._entitlements, {id: app.config for id, app in self._apps.items()}, specs)
        await self._upstreams.replace(specs, self._enter, self._held.leave)
        self._merged.forget([name for name, one in before.items() if self._upstreams.mounted.get(name) is not one])
        for name in before.keys() | specs.keys():
            policy = specs[name].policy if name in specs else None
            self._approving.void_outdated(name, policy.version if policy is not None else "")
        self._everything.tools_changed()

    def access(self, bridge: BridgeDoor, identify: Identify, principal: Principal | None) -> None:
        """End what is open of apps that `principal`, or any caller, may not use any more; update what they are shown.

        Requests and streams are ended by `Revocations`.
        """
        identify.reconsider()
        self._events.access_changed(principal)
        self._merged.access_changed(principal)
        for face in (self._everything, *(app.face for app in self._apps.values())):
            face.tools_changed(principal)
        for one in self._upstreams.mounted.values():
            one.upstream.tools_changed(principal)
        for job in (bridge.end_excluded(), self._approving.end_excluded(self._entitlements.admits)):
            self._tasks.create_task(job)

    def _renew(self, before: Running | None, now: Running) -> None:
        """Renew or void the state that depends on a changed app."""
        if before is None or before.packed is not now.packed:
            now.face.renew()
        if before is not None and before.config.policy is not now.config.policy:
            self._approving.void_outdated(now.config.id, now.config.policy.version)
        if before is not None and before.rules != now.rules:
            self._views.renew(now.config.id)

    async def _enter(self, face: McpMount) -> None:
        await self._held.enter(self._tasks, face)
