"""Hot reload: watches the files of the configuration, and replaces running apps and upstreams when they change."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path

from gateway.assembly.live_settings import Changing, LiveSettings
from gateway.assembly.packing import Packer
from gateway.callers.entitlements import widens
from gateway.callers.methods import OAuthIssuer
from gateway.config import (
    App,
    Config,
    Notice,
    NoticeKind,
    Notices,
    Reading,
    UpstreamSettings,
    Watch,
    active_reports,
    comparable,
    configured_files,
    live_changes,
    place_of,
    restart_keys,
    restart_problems,
    same_upstream,
    with_running,
)
from gateway.errors import DocumentError, Problem, Refusal, StartError
from gateway.exchange.approval_answers import Loosening
from gateway.exchange.approvals import MemoryApprovedVersions
from gateway.exchange.record import Record, Recorder
from gateway.model import Caller, Initiator, Principal
from gateway.policy import Policy, parse_policy
from gateway.policy.diff import Change, ChangeKind, Turn, change_fields, diff
from gateway.ports.approvals import Approvals, ApprovedVersions

LOOK = 1.0
"""Seconds between checks of the files; a change is applied after it was stable for one such interval."""

AGAIN = 5.0
"""Seconds after which files with errors are read again: a missing file may have appeared."""

GATEWAY = Principal(issuer="gateway", client="gateway", subject="reload")
"""The recorded author of policy changes: the file does not show who wrote it."""

log = logging.getLogger(__name__)


class Reloader:
    """Keeps the running configuration equal to its files.

    `reread`: reads them again; without it nothing changes.
    `changing`: replaces apps, upstreams and settings all at once, or nothing.
    `settings`: the settings that change while the gateway runs.
    `approvals`: a person must first approve what a policy opens; `approved` are the versions that persons approved.
    `problems`: why apps and upstreams of the files are not in `config`.
    `waiting`: apps of the files that `packer` is still to pack, and that come in while the gateway runs, in the
    `order` of the files.
    """

    def __init__(
        self,
        config: Config,
        *,
        reread: Callable[[], Reading] | None,
        changing: Changing,
        settings: LiveSettings,
        notices: Notices,
        recorder: Recorder,
        approvals: Approvals | None = None,
        approved: ApprovedVersions | None = None,
        problems: Sequence[Notice] = (),
        packer: Packer,
        waiting: Sequence[App] = (),
        order: Sequence[str] = (),
    ) -> None:
        self._packer = packer
        self._waiting = tuple(waiting)
        self._order = tuple(order)
        self._running = config
        self._reread = reread
        self._changing = changing
        self._settings = settings
        self._notices = notices
        self._recorder = recorder
        self.needs_restart: tuple[str, ...] = ()
        """The changed settings of the files that take effect at the next start."""
        self._watch = _watch(config, problems)
        self._request = asyncio.Event()
        self._problems = tuple(problems)
        self.after_reload: Callable[[], Awaitable[None]] = _do_nothing
        """Is awaited after the files were read, such as to announce the configuration to other processes."""
        self._is_start = True
        self._warned = False
        self._next = 0.0
        self._loosening = (
            Loosening(approvals, approved or MemoryApprovedVersions(), self.request_reload)
            if approvals is not None
            else None
        )

    def request_reload(self) -> None:
        """Request that the files are read now, as after SIGHUP."""
        self._request.set()

    @property
    def running(self) -> Config:
        """The configuration in use, another object after each change."""
        return self._running

    async def run(self) -> None:
        """Take in the apps that wait, then check the files every second, until cancelled."""
        self._publish_notices()
        if self._waiting:
            await self._take_waiting()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await self._request.wait()
            if self._reread is None:
                self._request.clear()
                self._publish_notices()
                continue
            changed = self._watch.look()
            broken = any(notice.kind is NoticeKind.BROKEN for notice in self._problems)
            due = broken and time.monotonic() >= self._next
            if changed or due or self._request.is_set():
                self._request.clear()
                await self._read(self._reread)
            self._publish_notices()  # report mode ends by itself

    async def _take_waiting(self) -> None:
        """Take in the apps that were configured at the start, as they are packed."""
        async with aclosing(self._packer.ahead(self._waiting)) as batches:
            async for batch in batches:
                notices = await self._take_packed(batch)
                if notices:  # others may take long
                    self._problems = (*self._problems, *notices)
                    self._publish_notices()
        self._waiting = ()
        self._watch = Watch(
            [*configured_files(self._running), *(Path(notice.problem.file) for notice in self._problems)]
        )
        self.request_reload()  # a file may have changed meanwhile

    async def _take_packed(self, batch: Sequence[App]) -> list[Notice]:
        """Take in apps together; if that fails, each alone. Return the failures as notices."""
        apps_now = {**self._running.apps, **{app.id: app for app in batch}}
        apps = {id: apps_now[id] for id in (*self._order, *apps_now) if id in apps_now}
        try:
            await self._changing.take(apps)
        except (StartError, DocumentError) as error:
            if len(batch) > 1:
                return [notice for app in batch for notice in await self._take_packed([app])]
            if isinstance(error, DocumentError):
                return [Notice(NoticeKind.BROKEN, problem, batch[0].id) for problem in error.problems]
            return [Notice(NoticeKind.BROKEN, Problem(str(self._running.path), 1, 1, str(error)), batch[0].id)]
        self._running = replace(self._running, apps=apps)
        return []

    async def _read(self, reread: Callable[[], Reading]) -> None:
        """Read the files and apply what can be applied. If they change meanwhile they are read again."""
        stamps = self._watch.stamps()
        reading = await asyncio.to_thread(reread)
        if self._watch.stamps() != stamps:
            self.request_reload()
            return
        self._next = time.monotonic() + AGAIN
        self._is_start = False
        problems = [Notice(NoticeKind.BROKEN, problem) for problem in reading.problems]
        if reading.config is not None:
            problems += await self._compare(reading.config, reading)
        self._problems = tuple(problems)
        broken = any(notice.kind is NoticeKind.BROKEN for notice in problems)
        self._recorder.metrics.reloads.labels("broken" if broken else "taken").inc()
        named = {Path(notice.problem.file) for notice in problems}
        files = {
            *configured_files(self._running),
            *configured_files(reading.config or self._running),
            *reading.files,
            *named,
        }
        self._watch.note_read(stamps, files)
        self._publish_notices()
        await self.after_reload()

    async def _compare(self, new_config: Config, reading: Reading) -> list[Notice]:
        """Apply what can change now; return notices for the rest."""
        waiting = list(await asyncio.to_thread(restart_problems, self._running, new_config, reading.file))
        self.needs_restart = tuple(restart_keys(self._running, new_config))
        usable = with_running(self._running, new_config)
        changed = live_changes(self._running, usable)
        if changed:
            notices = await self._change_settings(usable, changed, reading, waiting)
        else:
            notices = await self._change_each(usable, reading, waiting)
        return [*(Notice(NoticeKind.RESTART, problem) for problem in waiting), *notices]

    async def _change_settings(
        self, new_config: Config, changed: Sequence[str], reading: Reading, waiting: list[Problem]
    ) -> list[Notice]:
        """Apply the settings, with all apps and upstreams: all or nothing, since they were written for one another."""

        async def notices_of_failure(why: str) -> list[Notice]:
            place = await asyncio.to_thread(place_of, new_config, changed[0])
            return [Notice(NoticeKind.BROKEN, Problem(reading.file, *place, f"{', '.join(changed)}: not taken: {why}"))]

        if reading.problems:
            return await notices_of_failure("nor is anything else here before the other problems are corrected")
        try:
            if (held := await self._missing_approval(new_config, changed)) is not None:
                return await notices_of_failure(held)
            apps = self._succeeding_apps(new_config)
            if held_back := await self._held_back(dict(apps)):
                return held_back
            upstreams, waits = self._succeeding_upstreams(new_config, reading, waiting)
            if waits:
                return await notices_of_failure(
                    "an upstream in the same file waits for the next start, and they belong together"
                )
            settings = await self._settings.prepare(new_config)
            await self._apply(apps, upstreams, changed, partial(self._settings.replace, settings))
        except (StartError, Refusal) as error:
            return await notices_of_failure(str(error))
        except DocumentError as error:
            return [Notice(NoticeKind.BROKEN, problem) for problem in error.problems]
        self._running = replace(new_config, apps=apps, upstreams=upstreams)
        await self._settings.close_unused()
        return []

    async def _change_each(self, new_config: Config, reading: Reading, waiting: list[Problem]) -> list[Notice]:
        """Apply the upstreams and apps that can change now, each separately if another one cannot."""
        refusals = await self._compare_upstreams(new_config, reading, waiting)
        apps = {name: app for name, app in self._running.apps.items() if name in reading.broken_apps}
        apps |= self._succeeding_apps(new_config)
        notices = refusals + await self._held_back(apps)
        return notices + await self._apply_all(apps, reading.file)

    def _succeeding_apps(self, new_config: Config) -> dict[str, App]:
        """Return the apps of a configuration as they are to run; unchanged ones are the same objects."""
        return {name: _successor(self._running.apps.get(name), app) for name, app in new_config.apps.items()}

    async def _missing_approval(self, new_config: Config, changed: Sequence[str]) -> str | None:
        """Return why the changed settings do not take effect yet: a person must approve other callers and rights."""
        if self._loosening is None or not _admits_others(self._running, new_config):
            return None
        before, now = _version(self._running), _version(new_config)
        changes = [Change(Turn.OPENED, ChangeKind.POLICY, (key,), "changed") for key in changed]
        return await self._loosening.verdict(_caller(""), before, now, str(new_config.path), changes, now)

    async def _apply_all(self, apps: Mapping[str, App], file: str) -> list[Notice]:
        """Apply the apps; if one fails, each of the others separately. Return the refusals as notices.

        No app is removed while another one is refused: it may be the same app under a new name.
        """
        changed = {name: app for name, app in apps.items() if app != self._running.apps.get(name)}
        refusals = await self._try_apply(apps, file)
        if not refusals:
            return []
        if len(changed) == 1:
            return [replace(notice, app=name) for name in changed for notice in refusals]
        each: list[Notice] = []
        for name, app in changed.items():
            notices = await self._try_apply({**self._running.apps, name: app}, file)
            each += [replace(notice, app=name) for notice in notices]
        return each if changed else refusals

    async def _try_apply(self, apps: Mapping[str, App], file: str) -> list[Notice]:
        """Apply the apps, and return a failure as notices."""
        try:
            await self._apply(apps)
            self._running = replace(self._running, apps=apps)
        except (StartError, Refusal) as error:
            return [Notice(NoticeKind.BROKEN, Problem(file, 1, 1, f"not taken: {error}"))]
        except DocumentError as error:
            return [Notice(NoticeKind.BROKEN, problem) for problem in error.problems]
        return []

    async def _compare_upstreams(self, new_config: Config, reading: Reading, waiting: list[Problem]) -> list[Notice]:
        """Apply the upstreams that can change now; add to `waiting` those that need a restart."""
        old = self._running.upstreams
        upstreams, _ = self._succeeding_upstreams(new_config, reading, waiting)
        if list(upstreams) == list(old) and all(upstreams[name] is old[name] for name in old):
            return []
        try:
            await self._apply(None, upstreams)
        except Refusal as refusal:
            return [Notice(NoticeKind.BROKEN, Problem(reading.file, 1, 1, f"not taken: {refusal.detail}"))]
        self._running = replace(self._running, upstreams=upstreams)
        return []

    def _succeeding_upstreams(
        self, new_config: Config, reading: Reading, waiting: list[Problem]
    ) -> tuple[dict[str, UpstreamSettings], bool]:
        """Return the upstreams as they are to run, and whether one waits for a restart, which `waiting` says."""
        old, waits = self._running.upstreams, False
        upstreams: dict[str, UpstreamSettings] = {name: one for name, one in old.items() if name in reading.broken_apps}
        for name, one in new_config.upstreams.items():
            before = old.get(name)
            if before is not None and same_upstream(before, one):
                upstreams[name] = before
            elif self._loosening is not None and (before is None or not _same_rules(before, one)):
                why = "approvals.presence is configured, and no person can approve the loosened policy here"
                waiting.append(
                    Problem(reading.file, 1, 1, f"upstream {name}: {why}: it takes effect at the next start")
                )
                waits = True
                upstreams |= {name: before} if before is not None else {}
            else:
                upstreams[name] = one
        is_unread = any(name in reading.broken_apps for name in old)  # its position in the broken file is unknown
        places = (
            (*old, *new_config.upstreams) if is_unread else (*new_config.upstreams, *old)
        )  # decides who keeps a name on `/mcp`
        return {name: upstreams[name] for name in dict.fromkeys(places) if name in upstreams}, waits

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
                why = await self._loosening.verdict(
                    _caller(name), before.version, app.policy.version, app.policy.file, changes, _state(app)
                )
            except Refusal as refusal:
                why = refusal.detail
            if why is None:
                continue
            del apps[name]
            apps |= {name: old[name]} if name in old else {}
            notices.append(Notice(NoticeKind.BROKEN, Problem(app.policy.file, 1, 1, f"not taken: {why}")))
        return notices

    async def _apply(
        self,
        apps: Mapping[str, App] | None,
        upstreams: Mapping[str, UpstreamSettings] | None = None,
        changed: Sequence[str] = (),
        settings: Callable[[], None] = lambda: None,
    ) -> None:
        """Write the record, then apply apps, upstreams (None: not these), and the `changed` settings: all at once.

        What opens something is not applied without a record. Raises `StartError`, `DocumentError`, `Refusal`.
        """
        apps = self._running.apps if apps is None else apps
        if apps == self._running.apps and upstreams is None and not changed:
            return
        records: list[Record] = []
        lines: list[str] = []
        try:
            await self._record_settings(changed, records, lines)
            await self._record_apps(apps, records, lines)
            await self._record_upstreams(upstreams, records, lines)
            await self._changing.take(apps, upstreams, settings)
        except (StartError, DocumentError, Refusal) as error:
            for record in records:
                await record.close(status=500, detail=str(error))
            raise
        if self._loosening is not None:
            settings_in_effect = {} if not changed else {"": _version(self._settings.now.config)}
            await self._loosening.take_effect(
                {**settings_in_effect, **{name: _state(app) for name, app in apps.items()}}
            )
        for record in records:
            await record.close(status=200)
        for line in lines:
            log.info("%s", line)

    async def _record_settings(self, changed: Sequence[str], records: list[Record], lines: list[str]) -> None:
        if not changed:
            return
        record = self._recorder.start("policy", _caller(""), safe=False)
        record.note(initiator=None, method="settings", url=str(self._running.path), message=", ".join(changed)[:2000])
        await record.open()
        records.append(record)
        lines.append(f"in effect without a restart: {', '.join(changed)}")

    async def _record_apps(self, apps: Mapping[str, App], records: list[Record], lines: list[str]) -> None:
        old = self._running.apps
        renewals = [
            (name, _policy(old.get(name), name), _policy(apps.get(name), name))
            for name in dict.fromkeys((*apps, *old))
            if name not in apps or name not in old or not _same_access(apps[name], old[name])
        ]
        changes = await asyncio.to_thread(
            lambda: [
                (*_access_changes(old.get(name), apps.get(name)), *diff(before, after))
                for name, before, after in renewals
            ]
        )
        for (name, before, after), changed in zip(renewals, changes, strict=True):
            opens = any(change.turn is Turn.OPENED for change in changed)
            record = self._recorder.start("policy", _caller(name), safe=not opens)
            record.note(**change_fields(before, after, changed))
            await record.open()
            records.append(record)
            text = f"{after.file} is in effect, version {after.version}" if name in apps else "is gone"
            lines.append(f"app {name}: {text}")

    async def _record_upstreams(
        self, upstreams: Mapping[str, UpstreamSettings] | None, records: list[Record], lines: list[str]
    ) -> None:
        if upstreams is None:
            return
        old = self._running.upstreams
        changed = [name for name in dict.fromkeys((*upstreams, *old)) if upstreams.get(name) is not old.get(name)]
        for name in changed:
            before, now = old.get(name), upstreams.get(name)
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
        if changed or list(upstreams) != list(old):
            lines.append(f"upstreams changed: {', '.join(changed) or 'their order'}")

    def _publish_notices(self) -> None:
        """Publish the current problems, apps without a view and active report modes, and log them if they changed."""
        notices = [*self._problems, *self._changing.unshown(), *active_reports(self._running, time.time())]
        if not self._notices.say(notices):
            return
        wrong = [notice for notice in notices if notice.kind is not NoticeKind.REPORT]
        for notice in wrong:
            log.warning("%s", notice.problem)
        if any(notice.kind is NoticeKind.BROKEN for notice in wrong):
            log.warning(
                "until this is corrected, it is not served"
                if self._is_start
                else "until this is corrected, the configuration and the policies from before stay in effect"
            )
        if self._warned and not wrong:
            log.info("nothing is wrong any more: the files are in effect as they are")
        self._warned = bool(wrong)


async def _do_nothing() -> None:
    pass


def _same_rules(before: UpstreamSettings, now: UpstreamSettings) -> bool:
    """Return whether the offered and allowed tools are as before."""
    rules = [(one.include, one.exclude, one.policy and one.policy.version, one.target) for one in (before, now)]
    return rules[0] == rules[1] and before.command == now.command and not widens(before.access, now.access)


def _successor(old: App | None, new: App) -> App:
    """Return the app as it is to run: an unchanged app, or an unchanged policy, stays the same object."""
    if old is None or (old.policy.file, old.policy.version) != (new.policy.file, new.policy.version):
        return new
    spec = replace(new, policy=old.policy)
    return old if spec == old else spec


def _admits_others(old: Config, new: Config) -> bool:
    """Return whether callers, or rights, may be added: only a removal certainly adds none."""
    removed = set(map(str, map(comparable, new.auth))).issubset(map(str, map(comparable, old.auth)))
    user = new.roles.user
    closed = user == old.roles.user or (user is not None and (old.roles.user is None or user <= old.roles.user))
    fewer = all(getattr(new.roles, role) <= getattr(old.roles, role) for role in ("approver", "auditor", "admin"))
    return not (removed and closed and fewer) or new.approvals != old.approvals


def _version(config: Config) -> str:
    """Return a digest of the settings about which a person is asked; none of a secret."""
    auth = [replace(one, client_secret=None) if isinstance(one, OAuthIssuer) else one for one in config.auth]
    asking = config.approvals
    return hashlib.sha256(
        _stable_text((auth, config.roles, asking.ask, asking.interactive, asking.timeout)).encode()
    ).hexdigest()


def _stable_text(value: object) -> str:
    """Return a text of settings that is the same in every process: sets have another order in each."""
    match value:
        case frozenset() | set():
            return f"{{{', '.join(sorted(map(_stable_text, value)))}}}"
        case list() | tuple():
            return f"[{', '.join(map(_stable_text, value))}]"
        case Mapping():
            return f"{{{', '.join(sorted(f'{_stable_text(key)}: {_stable_text(one)}' for key, one in value.items()))}}}"
        case _ if is_dataclass(value):
            names = ((field.name, getattr(value, field.name)) for field in fields(value))
            return f"{type(value).__name__}({', '.join(f'{name}={_stable_text(one)}' for name, one in names)})"
        case _:
            return repr(value)


def _state(app: App) -> str:
    """Return the version of an app's policy together with who may use it."""
    access = app.access.description if app.access is not None else "everybody"
    return hashlib.sha256(f"{app.policy.version}\n{access}".encode()).hexdigest()


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
    text = f"for callers with {new.access.description}" if new.access is not None else "for everybody"
    return (Change(turn, ChangeKind.POLICY, (), f"access: {text}"),)


def _watch(config: Config, problems: Sequence[Notice]) -> Watch:
    """Return a watch over the files of the configuration, and those with problems."""
    return Watch([*configured_files(config), *(Path(notice.problem.file) for notice in problems)])


def _caller(app: str) -> Caller:
    return Caller(GATEWAY, app, None, Initiator.PAGE, "file")
