"""The command `webmcp-gateway`: each subcommand is a file of this package, imported when it is called."""

from __future__ import annotations

from gateway.cli.group import CommandGroup

main = CommandGroup(
    name="webmcp-gateway",
    purpose="Runs a normal web app as an MCP App, under one policy and one audit log.",
    commands_in={
        "init": "gateway.cli.init:init",
        "serve": "gateway.cli.serve:serve",
        "stdio": "gateway.cli.stdio.command:stdio",
        "dev": "gateway.cli.serve:dev",
        "pack": "gateway.cli.pack:pack",
        "policy": "gateway.cli.policy:policy",
        "approvals": "gateway.cli.approvals:approvals",
        "attack": "gateway.cli.attack.command:attack",
        "token": "gateway.cli.token:token",
        "credential": "gateway.cli.credential:credential",
        "storage": "gateway.cli.storage:storage",
        "audit": "gateway.cli.audit:audit",
        "doctor": "gateway.cli.doctor:doctor",
        "version": "gateway.cli.version:version",
    },
)

__all__ = ["main"]
