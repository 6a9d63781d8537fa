"""`audit`: reads the record and verifies its integrity."""

from __future__ import annotations

from gateway.cli.group import CommandGroup

audit = CommandGroup(
    name="audit",
    purpose="Read and verify the record.",
    commands_in={
        "tail": "gateway.cli.audit.tail:tail",
        "query": "gateway.cli.audit.query:query",
        "export": "gateway.cli.audit.export:export",
        "report": "gateway.cli.audit.report:report",
        "verify": "gateway.cli.audit.verify:verify",
        "key": "gateway.cli.audit.key:key",
    },
)

__all__ = ["audit"]
