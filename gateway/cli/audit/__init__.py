"""`audit`: reads the record and verifies its integrity."""

from __future__ import annotations

from gateway.cli.group import CommandGroup

audit = CommandGroup(
    name="audit",
    purpose="Read and verify the record.",
    commands_in={
        "tail": "gateway.cli.audit.commands:tail",
        "query": "gateway.cli.audit.commands:query",
        "export": "gateway.cli.audit.commands:export",
        "report": "gateway.cli.audit.report:report",
        "verify": "gateway.cli.audit.verify:verify",
        "key": "gateway.cli.audit.commands:key",
    },
)

__all__ = ["audit"]
