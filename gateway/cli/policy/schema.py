"""`policy schema`: prints the JSON Schema of policy files, for editors."""

from __future__ import annotations

import click

from gateway.cli.policy.output import json_option, write_json
from gateway.policy.keys import policy_schema


@click.command()
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema (draft 2020-12) of policy files.

    Editors complete and check a policy whose first line names it:
    # yaml-language-server: $schema=policy.schema.json

    It is JSON always; --json changes nothing. `policy check` says more: what a path, a URL or a condition may be.

    Example: webmcp-gateway policy schema > policy.schema.json
    """
    write_json(policy_schema())
