"""`policy explain`: explains the decision on one request or tool call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from rich.table import Table
from rich.text import Text

from gateway.callers.entitlements import AccessRule, Exclusion
from gateway.cli.output import FAILED, console, json_option, problems_as_json, write_json
from gateway.cli.policy.sources import access_rules, one_policy, policies_option
from gateway.jsontext.reading import parse_json
from gateway.model import BodyType, Caller, Door, Initiator, Json, Principal, Request
from gateway.policy import Explanation, Obligations, Policy, SocketRule, asked_protocols, explain_tool
from gateway.policy import explain as explain_request

STYLES: Final = {"allow": "bold green", "confirm": "bold yellow", "deny": "bold red"}


@dataclass(frozen=True, slots=True)
class ExplainedCall:
    """The call to explain: a request, or (`tool`) a call of a tool with `arguments`."""

    request: Request
    tool: str | None
    arguments: dict[str, Json]


@click.command()
@click.argument("method", required=False)
@click.argument("url", required=False)
@click.option(
    "--policy", "file", type=click.Path(path_type=Path), help="The policy file; by default the one of gateway.yaml."
)
@policies_option
@click.option("--app", metavar="ID", help="The app or upstream in gateway.yaml, if there are several.")
@click.option(
    "--initiator", type=click.Choice([str(one) for one in Initiator]), help="Initiator of the call.  [default: page]"
)
@click.option("--as", "principal", metavar="SUBJECT", default="local", show_default=True, help="Subject of the caller.")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role of the caller; repeatable.")
@click.option("--claim", "claims", multiple=True, metavar="NAME=JSON", help="A claim of the caller; repeatable.")
@click.option("--unproven", is_flag=True, help="Without view proof, like a direct call of the model.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME:VALUE", help="A header field; repeatable.")
@click.option("--body", metavar="JSON", help="The body, as JSON.")
@click.option("--tool", metavar="NAME", help="Explain a call of this tool of the page instead of a request.")
@click.option("--arguments", metavar="JSON", help="The arguments of the tool, as a JSON object.")
@json_option
@click.pass_context
def explain(
    ctx: click.Context,
    method: str | None,
    url: str | None,
    file: Path | None,
    config: Path,
    app: str | None,
    initiator: str | None,
    principal: str,
    roles: tuple[str, ...],
    claims: tuple[str, ...],
    unproven: bool,
    headers: tuple[str, ...],
    body: str | None,
    tool: str | None,
    arguments: str | None,
    as_json: bool,
) -> None:
    """Explain the decision on a request: each step, each candidate route, the outcome, the reason and the remedy.

    Report mode applies as configured.

    Exit code 0 if it is allowed (also after an approval), 1 if it is denied, 2 if the policy or an argument is invalid.

    \b
    Examples: webmcp-gateway policy explain DELETE /api/cart/7 --initiator model
              webmcp-gateway policy explain WEBSOCKET /chat -H sec-websocket-protocol:chat
              webmcp-gateway policy explain POST /api/checkout --role buyer --body '{"total": 20}'
              webmcp-gateway policy explain --tool add_to_cart --arguments '{"item": "7"}'
    """
    call = _call(method, url, headers, body, tool, arguments)
    with problems_as_json(as_json):
        app, policy = one_policy(file, config, app)
        rules = access_rules(config, app) if file is None else ()
    usual = Initiator.MODEL if tool is not None else Initiator.PAGE
    caller = Caller(
        principal=Principal("local", "local", principal, roles=frozenset(roles), claims=dict(map(_claim, claims))),
        app=app,
        door=Door.MCP,
        initiator=Initiator.MODEL if unproven else Initiator(initiator or usual),
        evidence="policy explain",
        view=None if unproven else "policy-explain",
        proven=not unproven,
    )
    explanation = (
        explain_request(policy, call.request, caller, time.time())
        if call.tool is None
        else explain_tool(policy, call.tool, caller, call.arguments, time.time())
    )
    access = [(rule, rule.exclusion(caller.principal)) for rule in rules]
    if as_json:
        write_json({**_json(policy, explanation), "access": [_access_json(rule, why) for rule, why in access]})
    else:
        _print(policy, explanation, access)
    if explanation.effect == "deny" or any(why is not None for _, why in access):
        ctx.exit(FAILED)


def _call(
    method: str | None,
    url: str | None,
    headers: tuple[str, ...],
    body: str | None,
    tool: str | None,
    arguments: str | None,
) -> ExplainedCall:
    if tool is not None:
        if method is not None or body is not None or headers:
            raise click.UsageError("--tool cannot be combined with METHOD, URL, --body or --header.")
        return ExplainedCall(Request("POST", "/"), tool, _object(arguments or "{}", "--arguments"))
    if method is None or url is None:
        raise click.UsageError("Name METHOD and URL, or a tool with --tool.")
    if arguments is not None:
        raise click.UsageError("--arguments are a tool's: name it with --tool.")
    return ExplainedCall(_request(method, url, headers, body), None, {})


def _request(method: str, url: str, headers: tuple[str, ...], body: str | None) -> Request:
    fields = tuple(_field(text) for text in headers)
    if body is None:
        return Request(method=method, url=url, headers=fields, protocols=asked_protocols(fields))
    _value(body, "--body")
    if not any(name == "content-type" for name, _ in fields):
        fields = (*fields, ("content-type", "application/json"))
    data = body.encode("utf-8", "surrogateescape")
    return Request(method=method, url=url, headers=fields, body=data, body_type=BodyType.JSON)


def _field(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise click.BadParameter(f"{text!r}: write NAME:VALUE", param_hint="--header")
    return name.strip().lower(), value.strip()


def _claim(text: str) -> tuple[str, Json]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r}: write NAME=JSON", param_hint="--claim")
    try:
        return name, parse_json(value)
    except ValueError:
        return name, value


def _value(text: str, option: str) -> Json:
    try:
        value: Json = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint=option) from error
    return value


def _object(text: str, option: str) -> dict[str, Json]:
    value = _value(text, option)
    if not isinstance(value, dict):
        raise click.BadParameter("must be a JSON object", param_hint=option)
    return value


def _print(policy: Policy, explanation: Explanation, access: Sequence[tuple[AccessRule, Exclusion | None]]) -> None:
    rows = [("access", _access(rule, why)) for rule, why in access]
    rows.append(("policy", Text(f"{policy.file} ({policy.version})")))
    rows += [(step.name, Text(step.value)) for step in explanation.steps]
    rows += [(candidate.place, Text(f"{candidate.route}: {candidate.outcome}")) for candidate in explanation.candidates]
    rows += [("saw", Text(f"{step.name}: {step.value}")) for step in explanation.facts]
    rows.append(("outcome", Text(explanation.effect, STYLES[explanation.effect])))
    rows += [("because", Text(reason)) for reason in explanation.reasons]
    rows += [(name, Text(value)) for name, value in _duties(explanation)]
    if explanation.remedy is not None:
        rows.append(("remedy", Text(explanation.remedy, "cyan")))
    out = console()
    if out.is_terminal:
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for row in rows:
            table.add_row(*row)
        out.print(table, soft_wrap=False)
        return
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        out.print(Text.assemble(f"{name:{width}}  ", value))


def _access(rule: AccessRule, why: Exclusion | None) -> Text:
    """Return whether an access rule lets the caller in, and where it is written."""
    place = f"{rule.file}:{rule.line}: "
    if why is None:
        return Text.assemble(place, ("admitted", STYLES["allow"]), f" ({rule.description})")
    return Text.assemble(place, ("excluded", STYLES["deny"]), f": {why.why}")


def _access_json(rule: AccessRule, why: Exclusion | None) -> Json:
    return {
        "file": rule.file,
        "line": rule.line,
        "rule": rule.description,
        "admitted": why is None,
        "why": why.why if why is not None else None,
    }


def _duties(explanation: Explanation) -> list[tuple[str, str]]:
    if explanation.decision is None or explanation.effect == "deny":
        return []
    duties = explanation.decision.obligations
    rows = [("question", duties.confirm)] if duties.confirm is not None else []
    rows += [("rate", f"{limit.rate.count} in {limit.rate.period:g} s per {limit.per}") for limit in duties.limits]
    rows += [("quota", f"{quota.count} in each {quota.window} per {quota.per}") for quota in duties.quotas]
    if explanation.request is None:
        return rows
    sizes = f"request {duties.request_limit} bytes, response {duties.response_limit} bytes, {duties.timeout:g} s"
    if explanation.request.opens_socket and duties.socket is not None:
        rows += _socket(duties.socket)
    return [*rows, ("at most", sizes), *_flags(duties)]


def _socket(rule: SocketRule) -> list[tuple[str, str]]:
    protocols = ", ".join(rule.protocols) if rule.protocols is not None else "any subprotocol"
    model = "also while the page acts for the model" if rule.model else "none while the page acts for the model"
    rates = [f"{limit.rate.count} in {limit.rate.period:g} s per {limit.per}" for limit in rule.limits]
    return [("WebSocket", "; ".join([protocols, f"messages of up to {rule.message} bytes", model, *rates]))]


def _flags(duties: Obligations) -> list[tuple[str, str]]:
    flags = {
        "idempotency key": duties.idempotent,
        "streams": duties.stream,
        "cookie jar": duties.cookies == "jar",
        "body is parsed and serialised again": duties.reads_body,
        "secret body": duties.secret,
    }
    rows = [("with", ", ".join(name for name, on in flags.items() if on))] if any(flags.values()) else []
    rows += [("masked", ", ".join(path.text for path in duties.mask))] if duties.mask else []
    return [*rows, ("in the vault", ", ".join(path.text for path in duties.vault))] if duties.vault else rows


def _json(policy: Policy, explanation: Explanation) -> dict[str, Json]:
    decision = explanation.decision
    return {
        "policy": {"file": policy.file, "version": policy.version},
        "steps": [{"name": step.name, "value": step.value} for step in explanation.steps],
        "tried": [
            {
                "route": candidate.route,
                "line": candidate.line,
                "file": candidate.file or None,
                "outcome": candidate.outcome,
            }
            for candidate in explanation.candidates
        ],
        "facts": [{"name": step.name, "value": step.value} for step in explanation.facts],
        "outcome": explanation.effect,
        "reasons": list(explanation.reasons),
        "remedy": explanation.remedy,
        "route": decision.route if decision is not None else None,
        "confirm": decision.obligations.confirm if decision is not None else None,
        "reported": decision.obligations.reported if decision is not None else False,
    }
