"""Calls plugins in configuration order; each call is awaited, one refusal is final, and an error refuses."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, TypeVar

import pluggy
from anyio.lowlevel import checkpoint_if_cancelled

from gateway import hookspecs
from gateway.errors import Reason, Refusal, StartError
from gateway.hookspecs import BackendFactory, CredentialFactory
from gateway.model import AuditRecord, Caller, CanonicalRequest, Question

TIMEOUT = 5.0
"""Seconds that one hook call of a plugin may take."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class PluginFailed(Exception):
    """A hook raised or timed out; the message names plugin and hook."""


class Hooks:
    """The loaded plugins. `names` are modules, or paths of `.py` files relative to `folder`."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._plugins = pluggy.PluginManager(hookspecs.PROJECT)
        self._plugins.add_hookspecs(hookspecs)
        try:
            for name in names:
                self._plugins.register(_load(name, folder), name=name)
            self._plugins.check_pending()
        except pluggy.PluginValidationError as error:
            plugin = self._plugins.get_name(error.plugin) or name
            what = " ".join(str(error).partition(" in plugin ")[0].split())
            raise StartError(f"plugin {plugin}: {what}; the hooks are listed in gateway/hookspecs.py") from error
        self._checks = self._implementations("check_request")
        self._audits = self._implementations("audit_record")
        self.hear_records = bool(self._audits)
        """True if a plugin receives records."""

    def backend_types(self) -> Mapping[str, BackendFactory]:
        """Return every backend type that plugins register. Raises `StartError` if two plugins register the same."""
        return self._types("register_backend_types", "backend")

    def credential_types(self) -> Mapping[str, CredentialFactory]:
        """Return every credential type that plugins register. Raises `StartError` if two plugins register the same."""
        return self._types("register_credential_types", "credential")

    async def resolve_secret(self, reference: str, place: str) -> str:
        """Return the secret from the first plugin that has it. Raises `StartError`, naming `place`, if none has."""
        for implementation in self._implementations("resolve_secret"):
            try:
                answer = await _call(implementation, reference=reference)
            except PluginFailed as error:
                raise StartError(f"{place}: {error}, asked for {reference!r}") from None
            if isinstance(answer, str) and answer:
                return answer
        raise StartError(f"{place}: no plugin has the secret {reference!r}; the loaded ones are listed under plugins")

    async def check_request(self, request: CanonicalRequest, caller: Caller) -> None:
        """Pass a request to every plugin. Raises `Refusal` (`plugin-refused`) at the first that refuses or fails."""
        for implementation in self._checks:
            try:
                answer = await _call(implementation, request=request, caller=caller)
            except PluginFailed as error:
                raise Refusal(Reason.PLUGIN_REFUSED, str(error)) from error
            if isinstance(answer, str):
                raise Refusal(Reason.PLUGIN_REFUSED, f"{_base_name(implementation)}: {answer}", words=answer)
            if answer is not None:
                wrong = f"check_request gives a text or None, not {type(answer).__name__}"
                raise Refusal(Reason.PLUGIN_REFUSED, f"{_base_name(implementation)}: {wrong}")

    async def audit_record(self, record: AuditRecord) -> None:
        """Pass a record to every plugin. Raises `Refusal` (`audit-unavailable`) if one fails at an intent."""
        for implementation in self._audits:
            try:
                await _call(implementation, record=record)
            except PluginFailed as error:
                log.error("%s", error)
                if record.phase == "intent":
                    raise Refusal(Reason.AUDIT_UNAVAILABLE, str(error)) from error

    def _types(self, hook: str, kind: str) -> dict[str, Any]:
        types: dict[str, Any] = {}
        for implementation in self._implementations(hook):
            try:
                value: object = implementation.function()
            except Exception as error:  # plugin code may raise anything; it stops the start
                raise StartError(f"plugin {implementation.plugin_name}: {hook}: {error!r}") from error
            if not isinstance(value, Mapping):
                if inspect.iscoroutine(value):
                    value.close()
                form = f"must be a plain function that returns a mapping, as in {{'my-{kind}': make}}"
                raise StartError(f"plugin {implementation.plugin_name}: {hook} {form}")
            for name, factory in value.items():
                if name in types:
                    raise StartError(f"plugin {implementation.plugin_name}: {kind} type {name!r} is registered twice")
                types[name] = factory
        return types

    @property
    def approvers(self) -> tuple[PluginApprover, ...]:
        """The plugins that can ask a person, in order."""
        return tuple(PluginApprover(implementation) for implementation in self._implementations("ask_approval"))

    def _implementations(self, hook: str) -> list[pluggy.HookImpl]:
        # pluggy lists the latest registration last and calls from the back
        return list(getattr(self._plugins.hook, hook).get_hookimpls())


def make_plugin(
    factory: Callable[[str, Mapping[str, Any]], T], what: str, name: str, options: Mapping[str, Any], *methods: str
) -> T:
    """Call a plugin's `factory`; the result must have `methods`. Raises `StartError`, naming `what`, if it fails."""
    try:
        implementation = factory(name, options)
    except ValueError as error:
        raise StartError(f"{what}: {error}") from error
    except (Exception, SystemExit) as error:  # plugin code may raise anything; it stops the start, or the reload
        raise StartError(f"{what}: its plugin failed: {error!r}") from error
    if missing := [method for method in methods if not callable(getattr(implementation, method, None))]:
        raise StartError(f"{what}: its plugin made {type(implementation).__name__}, which has no method {missing[0]}")
    return implementation


class PluginApprover:
    """A plugin as a way to ask a person. Its failure approves nothing; other ways continue."""

    def __init__(self, implementation: pluggy.HookImpl) -> None:
        self.name = f"plugin:{implementation.plugin_name}"
        self._implementation = implementation

    async def ask(self, question: Question) -> bool | None:
        """Return the plugin's answer; it has no timeout."""
        try:
            answer = await _call(self._implementation, None, question=question)
        except PluginFailed as error:
            log.error("%s; the question stays open without it", error)
            return None
        if answer is None or isinstance(answer, bool):
            return answer
        log.error("%s: ask_approval gives True, False or None, not %r", self.name, answer)
        return None

    async def over(self, question: Question, state: str) -> None:
        """Do nothing: the plugin is notified by cancellation."""


@contextmanager
def foreign() -> Iterator[None]:
    """Run plugin code: a cancellation that it raises itself becomes a `RuntimeError`."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it cancelled itself") from error


def _base_name(implementation: pluggy.HookImpl) -> str:
    """Return the plugin's file name without its folder: apps may read it."""
    return PurePath(implementation.plugin_name).name


async def _call(implementation: pluggy.HookImpl, timeout: float | None = TIMEOUT, **arguments: object) -> Any:
    own_arguments = {name: arguments[name] for name in implementation.argnames}
    task = asyncio.current_task()
    # A cancelled exchange calls plugins too; only a cancellation during the call counts.
    before = task.cancelling() if task is not None else 0
    try:
        with foreign():
            answer = implementation.function(**own_arguments)
            if inspect.isawaitable(answer):
                async with asyncio.timeout(timeout):
                    answer = await answer
    except (Exception, SystemExit) as error:  # plugin code may raise anything; it refuses
        hook = implementation.function.__name__
        log.exception("plugin %s failed in %s", implementation.plugin_name, hook)
        raise PluginFailed(f"plugin {_base_name(implementation)} failed in {hook}") from error
    finally:
        if task is not None and task.cancelling() > before:  # a cancelled task ends, even if the plugin suppressed it
            await checkpoint_if_cancelled()  # an anyio scope needs its own cancellation exception
            raise asyncio.CancelledError
    return answer


@contextmanager
def _without_bytecode() -> Iterator[None]:
    """Write no `__pycache__` beside the configuration."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _load(name: str, folder: Path) -> ModuleType:
    try:
        if not name.endswith(".py"):
            return importlib.import_module(name)
        path = folder / name
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise StartError(f"plugin {name}: no such file as {path}")
        module = importlib.util.module_from_spec(spec)
        with _without_bytecode():
            spec.loader.exec_module(module)
    except StartError:
        raise
    except (Exception, SystemExit) as error:  # plugin code may raise anything on import; it stops the start
        raise StartError(f"plugin {name} cannot be loaded: {error!r}") from error
    return module
