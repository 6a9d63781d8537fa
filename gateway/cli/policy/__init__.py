"""`policy`: checks and explains policies before they are in use."""

from __future__ import annotations

from gateway.cli.group import CommandGroup

policy = CommandGroup(
    name="policy",
    purpose="Check, test, explain, compare, replay and learn policies.",
    commands_in={
        "check": "gateway.cli.policy.commands:check",
        "test": "gateway.cli.policy.test:test",
        "explain": "gateway.cli.policy.explain:explain",
        "diff": "gateway.cli.policy.commands:diff",
        "replay": "gateway.cli.policy.replay:replay",
        "learn": "gateway.cli.policy.learn:learn",
        "schema": "gateway.cli.policy.commands:schema",
    },
)

__all__ = ["policy"]
