"""`storage`: backs up, restores and checks the state, and manages what pages of apps store for people."""

from __future__ import annotations

from gateway.cli.group import CommandGroup

storage = CommandGroup(
    name="storage",
    purpose="Back up, restore and check the state; list and delete page storage.",
    commands_in={
        "backup": "gateway.cli.storage.state:back_up_state",
        "restore": "gateway.cli.storage.state:restore_state",
        "check": "gateway.cli.storage.state:check_state",
        "list": "gateway.cli.storage.commands:list_storage",
        "delete": "gateway.cli.storage.commands:delete_storage",
    },
)

__all__ = ["storage"]
