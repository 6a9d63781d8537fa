"""The command `webmcp-gateway` and its groups; each command is in a module of this package, imported when called."""

from __future__ import annotations

from gateway.cli.group import CommandGroup

policy_commands = CommandGroup(
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

token_commands = CommandGroup(
    name="token",
    purpose="Create, list and revoke the gateway's own tokens, and login links to the console.",
    commands_in={
        "create": "gateway.cli.token:create",
        "list": "gateway.cli.token:list_tokens",
        "revoke": "gateway.cli.token:revoke",
        "link": "gateway.cli.token:link",
    },
)

credential_commands = CommandGroup(
    name="credential",
    purpose="List, connect, test and revoke credentials; rotate the encryption key.",
    commands_in={
        "list": "gateway.cli.credential:list_credentials",
        "connect": "gateway.cli.credential:connect",
        "test": "gateway.cli.credential:test",
        "revoke": "gateway.cli.credential:revoke",
        "rotate-key": "gateway.cli.credential:rotate_key",
    },
)

storage_commands = CommandGroup(
    name="storage",
    purpose="Back up, restore and check the state; list and delete page storage.",
    commands_in={
        "backup": "gateway.cli.storage:back_up_state",
        "restore": "gateway.cli.storage:restore_state",
        "check": "gateway.cli.storage:check_state",
        "list": "gateway.cli.storage:list_storage",
        "delete": "gateway.cli.storage:delete_storage",
    },
)

cluster_commands = CommandGroup(
    name="cluster",
    purpose="Show the processes of a gateway of several.",
    commands_in={"status": "gateway.cli.cluster:status"},
)

audit_commands = CommandGroup(
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

main = CommandGroup(
    name="webmcp-gateway",
    purpose="Runs a normal web app as an MCP App, under one policy and one audit log.",
    commands_in={
        "init": "gateway.cli.init:init",
        "serve": "gateway.cli.serve:serve",
        "stdio": "gateway.cli.stdio.command:stdio",
        "dev": "gateway.cli.serve:dev",
        "connect": "gateway.cli.connect:connect",
        "pack": "gateway.cli.pack:pack",
        "policy": "gateway.cli:policy_commands",
        "approvals": "gateway.cli.approvals:approvals",
        "attack": "gateway.cli.attack.command:attack",
        "token": "gateway.cli:token_commands",
        "credential": "gateway.cli:credential_commands",
        "storage": "gateway.cli:storage_commands",
        "audit": "gateway.cli:audit_commands",
        "cluster": "gateway.cli:cluster_commands",
        "doctor": "gateway.cli.doctor:doctor",
        "version": "gateway.cli.version:version",
    },
)

__all__ = ["main"]
