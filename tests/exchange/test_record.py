"""The records that plugins receive, and the cause that a call belongs to."""

from __future__ import annotations

from pathlib import Path

from gateway.exchange.record import OnFailure, Recorder
from gateway.hooks import Hooks
from gateway.model import LOCAL, Caller, Door, Initiator
from gateway.stores.journal import Journal

CALLER = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "no-gesture")
PLUGIN = """
from pathlib import Path
from webmcp_gateway_hooks import hookimpl

@hookimpl
def audit_record(record):
    with Path(__file__).with_name("said").open("a") as file:
        file.write(str(record.fields))
"""


async def test_plugins_get_what_the_journal_gets(tmp_path: Path) -> None:
    """Redacted values are removed before plugins see them."""
    text = PLUGIN.replace("webmcp_gateway_hooks", "gateway.hookspecs")
    (tmp_path / "sink.py").write_text(text)
    async with Journal(tmp_path / "journal", redact=["$..password"]) as journal:
        recorder = Recorder(journal, Hooks(["sink.py"], tmp_path), OnFailure.REFUSE)
        record = recorder.start("tool", CALLER, safe=False)
        record.note(arguments={"password": "hunter2", "name": "ada"})
        await record.open()
        await record.close(status=200)
    assert "ada" in (tmp_path / "said").read_text()
    assert "hunter2" not in (tmp_path / "said").read_text()
    assert b"hunter2" not in (tmp_path / "journal").read_bytes()
