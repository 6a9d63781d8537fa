"""`policy schema`: prints the JSON Schema of policy files, for editors."""

from __future__ import annotations

import click

from gateway.cli.policy.output import json_option, write_json
from gateway.policy.keys import policy_schema


@click.command()
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema (draft 2020-12) of policy files.

    Editors complete and validate a policy whose first line names it:
    # yaml-language-server: $schema=policy.schema.json

    The output is always JSON. `policy check` checks more: paths, URLs and conditions.

    Example: webmcp-gateway policy schema > policy.schema.json
    """
    write_json(policy_schema())
