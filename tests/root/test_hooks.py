"""Plugins are loaded by name, called in order and awaited; any failure refuses."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio
import pytest

from gateway.errors import LONGEST, Reason, Refusal, StartError
from gateway.exchange.record import OnFailure, Recorder
from gateway.hooks import Hooks, make_plugin
from gateway.model import LOCAL, AuditRecord, BodyType, Caller, CanonicalRequest, Door, Initiator
from gateway.stores.journal import Journal
from tests.exchange.house import ends_when_cancelled

REQUEST = CanonicalRequest("POST", "/api/cart", "", (), b"{}", BodyType.JSON, "shop")
CALLER = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "no-gesture")
HEAD = "from gateway.hookspecs import hookimpl\n"


def plugin(folder: Path, name: str, body: str) -> str:
    """Write a plugin; return its name for the configuration."""
    (folder / name).write_text(HEAD + body)
    return name


async def test_first_refusal_wins_in_the_order_of_the_configuration(tmp_path: Path) -> None:
    """Both plugins refuse; the refusal of the one named first is returned."""
    one = plugin(tmp_path, "one.py", "@hookimpl\nasync def check_request(request): return 'one says no'\n")
    two = plugin(tmp_path, "two.py", "@hookimpl\ndef check_request(request): return 'two says no'\n")
    with pytest.raises(Refusal, match="one says no") as refused:
        await Hooks([one, two], tmp_path).check_request(REQUEST, CALLER)
    assert refused.value.reason is Reason.PLUGIN_REFUSED
    with pytest.raises(Refusal, match="two says no"):
        await Hooks([two, one], tmp_path).check_request(REQUEST, CALLER)


@pytest.mark.parametrize("error", ["RuntimeError('boom')", "__import__('asyncio').CancelledError('boom')"])
async def test_a_plugin_that_raises_refuses_and_is_named(tmp_path: Path, error: str) -> None:
    """An exception in a hook is a refusal, never a pass; a CancelledError that it raises does not cancel the caller."""
    broken = plugin(tmp_path, "broken.py", f"@hookimpl\ndef check_request(caller): raise {error}\n")
    with pytest.raises(Refusal, match=r"broken\.py failed in check_request") as refused:
        await Hooks([broken], tmp_path).check_request(REQUEST, CALLER)
    assert "boom" not in refused.value.detail


@pytest.mark.parametrize("answer", ["True", "False", "b'no'", "exit()"])
async def test_what_is_no_text_refuses_and_is_told_to_nobody(tmp_path: Path, answer: str) -> None:
    """Only a text is shown to people; a SystemExit does not end the gateway."""
    odd = plugin(tmp_path, "odd.py", f"from sys import exit\n@hookimpl\ndef check_request(): return {answer}\n")
    with pytest.raises(Refusal, match=r"odd\.py") as refused:
        await Hooks([odd], tmp_path).check_request(REQUEST, CALLER)
    assert answer not in refused.value.words


async def test_what_a_plugin_refuses_with_is_bounded(tmp_path: Path) -> None:
    """The text goes into the answer, the record and the log."""
    name = plugin(tmp_path, "talks.py", "@hookimpl\ndef check_request(): return 'no ' * 10**6\n")
    with pytest.raises(Refusal, match=r"talks\.py: no no") as refused:
        await Hooks([name], tmp_path).check_request(REQUEST, CALLER)
    assert {len(refused.value.detail), len(refused.value.words)} == {LONGEST}


async def test_a_plugin_that_allows_leaves_the_request_alone(tmp_path: Path) -> None:
    """None means no objection."""
    quiet = plugin(tmp_path, "quiet.py", "@hookimpl\nasync def check_request(request, caller): return None\n")
    await Hooks([quiet], tmp_path).check_request(REQUEST, CALLER)


def test_a_misspelt_hook_stops_the_start(tmp_path: Path) -> None:
    """A marked function that is no hook would never be called."""
    typo = plugin(tmp_path, "typo.py", "@hookimpl\ndef chek_request(request): return 'no'\n")
    with pytest.raises(StartError, match=r"^plugin typo\.py: unknown hook 'chek_request'; "):
        Hooks([typo], tmp_path)


def test_an_argument_that_no_hook_has_stops_the_start(tmp_path: Path) -> None:
    """The one-line error names the plugin and the argument."""
    wrong = plugin(tmp_path, "wrong.py", "@hookimpl\ndef check_request(person): return 'no'\n")
    with pytest.raises(StartError, match=r"^plugin wrong\.py: .*'person'.*; the hooks are listed"):
        Hooks([wrong], tmp_path)


@pytest.mark.parametrize("name", ["absent.py", "no_such_package.plugin", "leaves.py"])
def test_a_plugin_that_cannot_be_loaded_stops_the_start(tmp_path: Path, name: str) -> None:
    """No plugin in the configuration is skipped, and none ends the gateway without an error."""
    plugin(tmp_path, "leaves.py", "raise SystemExit(0)\n")
    with pytest.raises(StartError, match=name):
        Hooks([name], tmp_path)


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (lambda name, options: options["folder"], r"backend 'b': its plugin failed: KeyError\('folder'\)"),
        (lambda name, options: sys.exit(name), r"backend 'b': its plugin failed: SystemExit\('b'\)"),
        (lambda name, options: None, "backend 'b': its plugin made NoneType, which has no method send"),
    ],
)
def test_what_a_plugin_cannot_make_is_said(factory: Callable[[str, Mapping[str, object]], None], said: str) -> None:
    """At the start, and not at each call later."""
    with pytest.raises(StartError, match=said):
        make_plugin(factory, "backend 'b'", "b", {}, "send")


async def test_a_failing_audit_hook_refuses_at_the_intent_only(tmp_path: Path) -> None:
    """An unrecorded request is not sent; an existing answer is still returned."""
    broken = plugin(tmp_path, "sink.py", "@hookimpl\nasync def audit_record(record): raise OSError('disk')\n")
    hooks = Hooks([broken], tmp_path)
    await hooks.audit_record(AuditRecord("a", "outcome", 0.0, {}))
    with pytest.raises(Refusal) as refused:
        await hooks.audit_record(AuditRecord("a", "intent", 0.0, {}))
    assert refused.value.reason is Reason.AUDIT_UNAVAILABLE


@pytest.mark.parametrize("body", ["async def register_backend_types(): return {}", "def register_backend_types(): ..."])
def test_types_that_are_no_mapping_stop_the_start(tmp_path: Path, body: str) -> None:
    """The message names the plugin, the hook and the expected form."""
    name = plugin(tmp_path, "types.py", f"@hookimpl\n{body}\n")
    with pytest.raises(StartError, match=r"types\.py: register_backend_types must be a plain function"):
        Hooks([name], tmp_path).backend_types()


def test_a_backend_type_registered_twice_stops_the_start(tmp_path: Path) -> None:
    """It would be ambiguous."""
    body = "@hookimpl\ndef register_backend_types(): return {'x': None}\n"
    names = [plugin(tmp_path, "a.py", body), plugin(tmp_path, "b.py", body)]
    with pytest.raises(StartError, match="registered twice"):
        Hooks(names, tmp_path).backend_types()


ANSWERS_SOON = """
import asyncio

@hookimpl
async def check_request(request): await asyncio.sleep(0)
"""

KEEPS_IT_TO_ITSELF = """
import asyncio

@hookimpl
async def check_request(request):
    try: await asyncio.sleep(60)
    except asyncio.CancelledError: END
"""


@pytest.mark.parametrize("end", ["pass", "raise OSError('cleaning up')"])
async def test_who_is_cancelled_in_a_plugin_ends(tmp_path: Path, end: str) -> None:
    """Even if the plugin swallows the cancellation: a stopping gateway cancels each request once."""
    hooks = Hooks([plugin(tmp_path, "keeps.py", KEEPS_IT_TO_ITSELF.replace("END", end))], tmp_path)
    asked = asyncio.create_task(hooks.check_request(REQUEST, CALLER))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait({asked})
    assert asked.cancelled()


@pytest.mark.parametrize("end", ["pass", "raise OSError('cleaning up')"])
async def test_what_is_cancelled_with_a_scope_ends_there(tmp_path: Path, end: str) -> None:
    """And the other calls of its session continue."""
    hooks = Hooks([plugin(tmp_path, "keeps.py", KEEPS_IT_TO_ITSELF.replace("END", end))], tmp_path)
    ended: list[bool] = []

    async def call() -> None:
        with anyio.CancelScope() as scope:
            asyncio.get_running_loop().call_soon(scope.cancel)
            await hooks.check_request(REQUEST, CALLER)
        ended.append(scope.cancelled_caught)

    await asyncio.wait({asyncio.create_task(call())})
    assert ended == [True]


@pytest.mark.parametrize("turns", range(4))
async def test_who_is_cancelled_as_a_plugin_answers_ends(tmp_path: Path, turns: int) -> None:
    """In each turn of the loop until the plugin has answered."""
    hooks = Hooks([plugin(tmp_path, "soon.py", ANSWERS_SOON)], tmp_path)
    await ends_when_cancelled(hooks.check_request(REQUEST, CALLER), lambda: None, turns)


HEARS = """
import asyncio
from pathlib import Path

@hookimpl
async def audit_record(record):
    await asyncio.sleep(0)
    Path(__file__ + ".heard").write_text(record.id)
"""


async def test_every_plugin_hears_the_outcome_of_what_was_cancelled(tmp_path: Path) -> None:
    """The plugins are called after the cancellation, within the task that ends with it."""
    names = [plugin(tmp_path, f"{name}.py", HEARS) for name in ("one", "two")]
    hooks = Hooks(names, tmp_path)

    async def exchange() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await hooks.audit_record(AuditRecord("an-id", "outcome", 0.0, {}))

    task = asyncio.create_task(exchange())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert [(tmp_path / f"{name}.heard").read_text() for name in names] == ["an-id", "an-id"]


async def test_every_plugin_hears_the_outcome_of_what_a_scope_ended(tmp_path: Path) -> None:
    """The MCP SDK ends calls so: each await would be cancelled again."""
    names = [plugin(tmp_path, f"{name}.py", HEARS) for name in ("one", "two")]
    async with Journal(tmp_path / "journal") as journal:
        recorder = Recorder(journal, Hooks(names, tmp_path), OnFailure.CONTINUE)
        with anyio.CancelScope() as scope:
            record = recorder.start("http", CALLER, safe=True)
            scope.cancel()
            try:
                await asyncio.sleep(60)
            finally:
                await record.close(status=499, reason=Reason.CANCELLED)
    assert scope.cancelled_caught
    assert [(tmp_path / f"{name}.py.heard").read_text() for name in ("one", "two")] == [record.id] * 2
