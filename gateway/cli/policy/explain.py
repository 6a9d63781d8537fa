"""`policy explain`: what a policy says of one request, and why."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gateway.cli.policy.sources import config_option, one_policy
from gateway.model import BodyType, Caller, Door, Initiator, Principal, Request
from gateway.policy import Explanation, Policy
from gateway.policy import explain as explained

DENIED = 1


@click.command()
@click.argument("method")
@click.argument("url")
@click.option(
    "--policy", "file", type=click.Path(path_type=Path), help="The policy file; left out, gateway.yaml names it."
)
@config_option
@click.option("--app", metavar="ID", help="The app in gateway.yaml, where there are several.")
@click.option("--initiator", type=click.Choice([str(one) for one in Initiator]), default="page", show_default=True)
@click.option("--as", "principal", metavar="SUBJECT", default="local", show_default=True, help="Who calls.")
@click.option("--unproven", is_flag=True, help="Without view proof, as a call that the model made.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME:VALUE", help="A header field; may be repeated.")
@click.option("--body", metavar="JSON", help="The body, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.pass_context
def explain(
    ctx: click.Context,
    method: str,
    url: str,
    file: Path | None,
    config: Path,
    app: str | None,
    initiator: str,
    principal: str,
    unproven: bool,
    headers: tuple[str, ...],
    body: str | None,
    as_json: bool,
) -> None:
    """Say what the policy makes of a request: each step, each route tried, the outcome, why, and the remedy.

    Exit code 0 if it is allowed (also if a person is asked first), 1 if it is denied, 2 if the policy cannot be used.
    """
    app, policy = one_policy(file, config, app)
    caller = Caller(
        principal=Principal(issuer="local", client="local", subject=principal),
        app=app,
        door=Door.MCP,
        initiator=Initiator.MODEL if unproven else Initiator(initiator),
        evidence="policy explain",
        view=None if unproven else "policy-explain",
        proven=not unproven,
    )
    found = explained(policy, _request(method, url, headers, body), caller)
    click.echo(json.dumps(_json(policy, found), indent=2) if as_json else _text(policy, found))
    if found.effect == "deny":
        ctx.exit(DENIED)


def _request(method: str, url: str, headers: tuple[str, ...], body: str | None) -> Request:
    fields = tuple(_field(text) for text in headers)
    if body is None:
        return Request(method=method, url=url, headers=fields)
    if not any(name == "content-type" for name, _ in fields):
        fields = (*fields, ("content-type", "application/json"))
    return Request(method=method, url=url, headers=fields, body=body.encode(), body_type=BodyType.JSON)


def _field(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise click.BadParameter(f"{text!r}: write NAME:VALUE", param_hint="--header")
    return name.strip().lower(), value.strip()


def _text(policy: Policy, found: Explanation) -> str:
    rows = [("policy", f"{policy.file} ({policy.version})")]
    rows += [(step.name, step.value) for step in found.steps]
    rows += [(f"line {tried.line}", f"{tried.route}: {tried.outcome}") for tried in found.tried]
    rows += [("outcome", found.effect), *(("because", reason) for reason in found.reasons)]
    if found.remedy is not None:
        rows.append(("remedy", found.remedy))
    rows += _duties(found)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def _duties(found: Explanation) -> list[tuple[str, str]]:
    if found.decision is None or found.effect == "deny":
        return []
    duties = found.decision.obligations
    rows = [("question", duties.confirm)] if duties.confirm is not None else []
    rows += [("rate", f"{limit.rate.count} in {limit.rate.period:g} s per {limit.per}") for limit in duties.limits]
    sizes = f"request {duties.request_limit} bytes, response {duties.response_limit} bytes, {duties.timeout:g} s"
    return [*rows, ("at most", sizes)]


def _json(policy: Policy, found: Explanation) -> dict[str, object]:
    decision = found.decision
    return {
        "policy": {"file": policy.file, "version": policy.version},
        "steps": [{"name": step.name, "value": step.value} for step in found.steps],
        "tried": [{"route": tried.route, "line": tried.line, "outcome": tried.outcome} for tried in found.tried],
        "outcome": found.effect,
        "reasons": found.reasons,
        "remedy": found.remedy,
        "route": decision.route if decision is not None else None,
        "confirm": decision.obligations.confirm if decision is not None else None,
    }
