"""`approvals`: lists open questions, answers them, and ends grants, from the command line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import click

from gateway.backends.connect import Connections
from gateway.cli.group import CommandGroup, Unusable, config_option
from gateway.cli.loopback import Loopback
from gateway.config import load_config
from gateway.config.secrets import LenientEnvironment
from gateway.errors import DocumentError, Refusal
from gateway.event_stream import EventReader
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import indented_json
from gateway.policy import Network
from gateway.policy.messages import visible

REFUSED = 400
NO_HEADERS: Mapping[str, str] = {}
_ANYWHERE = Network(public=True, private=True)
"""The user's own gateway may have any address."""

LARGEST = 64 * 1024 * 1024
"""Bytes of the largest event of the console: all open questions, with the bodies of their calls."""

T = TypeVar("T")
Question = Mapping[str, Any]

approvals = CommandGroup(
    name="approvals",
    purpose="List and answer open questions, through the running gateway's console.",
    commands_in={
        "list": "gateway.cli.approvals:list_",
        "answer": "gateway.cli.approvals:answer",
        "watch": "gateway.cli.approvals:watch",
        "grants": "gateway.cli.approvals:grants",
        "revoke": "gateway.cli.approvals:revoke",
    },
)


class Gateway:
    """An HTTP client of a running gateway's console API."""

    def __init__(self, connections: Connections, console: str, headers: Mapping[str, str]) -> None:
        self._session = connections.open(_ANYWHERE)
        self._console = console
        self._headers = headers

    async def get(self, path: str) -> Any:
        """Get the JSON at `path`."""
        return await self._send("GET", path)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Post JSON to `path`, with a CSRF token."""
        csrf = (await self._send("GET", "/api/state"))["csrf"]
        return await self._send("POST", path, {"webmcp-gateway-csrf": csrf}, json=body)

    async def questions(self) -> AsyncIterator[list[Question]]:
        """Yield the open questions whenever they change."""
        async with self._session.get(f"{self._console}/api/events", headers=self._headers) as stream:
            await _check(stream)
            if stream.content_type != "text/event-stream":
                raise Unusable(f"the gateway does not answer as one: {stream.content_type} is no event stream")
            reader = EventReader(LARGEST)
            async for part in stream.content.iter_any():
                for event in reader.feed(part):
                    if event is not None and event.type == "approvals":
                        yield parse_json(bytes(event.data))

    async def _send(self, method: str, path: str, headers: Mapping[str, str] = NO_HEADERS, **options: Any) -> Any:
        headers = {**self._headers, **headers}
        async with self._session.request(method, self._console + path, headers=headers, **options) as response:
            await _check(response)
            return await response.json()


def _with_console_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        config_option("The configuration, which names the console's address."),
        click.option("--url", help="URL of the console instead, such as http://gateway.localhost:8080."),
        click.option("--token", envvar="WEBMCP_GATEWAY_TOKEN", help="A token with the capability `approve`."),
    ):  # fmt: skip
        command = option(command)
    return command


@click.command("list")
@_with_console_options
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
def list_(path: Path, url: str | None, token: str | None, as_json: bool) -> None:
    """List the open questions that you may answer.

    Example: webmcp-gateway approvals list
    """
    questions = _run(path, url, token, lambda gateway: gateway.get("/api/approvals"))["approvals"]
    if as_json:
        click.echo(indented_json(questions))
        return
    for question in questions:
        click.echo(format_question(question))
    if not questions:
        click.echo("Nothing waits for you.")


@click.command()
@click.argument("id")
@click.option("--approve", "answer_text", flag_value="approve", help="Approve without a prompt.")
@click.option("--decline", "answer_text", flag_value="decline", help="Decline without a prompt.")
@click.option("--grant", is_flag=True, help="Approve all calls under the rule, for the period that the policy grants.")
@_with_console_options
def answer(id: str, answer_text: str | None, grant: bool, path: Path, url: str | None, token: str | None) -> None:
    """Show the question ID, and answer it. The start of an id is enough.

    Example: webmcp-gateway approvals answer 4f0a
    """

    async def run(gateway: Gateway) -> str:
        open_questions = (await gateway.get("/api/approvals"))["approvals"]
        questions = [question for question in open_questions if question["id"].startswith(id)]
        if len(questions) != 1:
            raise Unusable(f"{len(questions) or 'no'} open questions begin with {id!r}; `approvals list` shows them")
        return await _answer(gateway, questions[0], answer_text, grant=grant)

    click.echo(_run(path, url, token, run))


@click.command()
@click.option("--answer", "answering", is_flag=True, help="Prompt for an answer to each.")
@_with_console_options
def watch(answering: bool, path: Path, url: str | None, token: str | None) -> None:
    """Show questions as they come, until Ctrl-C.

    Example: webmcp-gateway approvals watch --answer
    """

    async def run(gateway: Gateway) -> None:
        seen: dict[str, Question] = {}
        async for questions in gateway.questions():
            now = {question["id"]: question for question in questions}
            for id in seen.keys() - now.keys():
                click.echo(f"{id[:8]}  is over")
            for id in [id for id in now if id not in seen]:
                if not answering:
                    click.echo(format_question(now[id]))
                    continue
                try:
                    click.echo(await _answer(gateway, now[id], None, grant=False))
                except Unusable as error:
                    click.echo(error.message, err=True)
            seen = now

    _run(path, url, token, run)


@click.command()
@_with_console_options
def grants(path: Path, url: str | None, token: str | None) -> None:
    """List grants: approvals that cover further calls for a period.

    Example: webmcp-gateway approvals grants
    """
    held = _run(path, url, token, lambda gateway: gateway.get("/api/grants"))["grants"]
    for grant in held:
        left = max(0, round(grant["expires"] - time.time()))
        click.echo(f"{grant['id'][:8]}  {grant['app']}  {visible(grant['rule'])}  for {left // 60}:{left % 60:02} more")
        click.echo(f"          {visible(grant['message'])}")
    if not held:
        click.echo("No grants.")


@click.command()
@click.argument("id")
@_with_console_options
def revoke(id: str, path: Path, url: str | None, token: str | None) -> None:
    """End the grant ID. The start of an id is enough.

    Example: webmcp-gateway approvals revoke 9a2B
    """

    async def run(gateway: Gateway) -> None:
        grants = [grant for grant in (await gateway.get("/api/grants"))["grants"] if grant["id"].startswith(id)]
        if len(grants) != 1:
            raise Unusable(f"{len(grants) or 'no'} grants begin with {id!r}; `approvals grants` shows them")
        await gateway.post(f"/api/grants/{grants[0]['id']}/revoke", {})

    _run(path, url, token, run)
    click.echo("Revoked.")


def format_question(question: Question) -> str:
    """Format a question and the raw call; its content cannot imitate a line of ours."""
    left = max(0, round(question["expires"] - time.time()))
    head = f"{question['id'][:8]}  {question['app']}, by the {question['initiator']}, {left // 60}:{left % 60:02} left"
    lines = [f"{question['method']} {question['target']}"]
    lines += [f"{name}: {value}" for name, value in question["headers"]]
    lines += ["", *question["body"].split("\n")] if question["size"] else []
    raw = "\n".join(f"    | {visible(line)}" for line in lines)
    return f"{head}\n  {visible(question['message'])}\n{raw}\n"


async def _answer(gateway: Gateway, question: Question, answer_text: str | None, *, grant: bool) -> str:
    """Answer a question; the digest binds the answer to what is shown here."""
    if answer_text is None:
        click.echo(format_question(question))
        yes = await asyncio.to_thread(click.prompt, "Type `approve` or `decline`", type=click.Choice(ANSWERS))
        answer_text = str(yes)
    body = {"answer": answer_text, "digest": question["digest"], **({"grant": True} if grant else {})}
    answer = await gateway.post(f"/api/approvals/{question['id']}", body)
    return f"{question['id'][:8]}  {answer['status']}"


ANSWERS = ("approve", "decline")


def _run(path: Path, url: str | None, token: str | None, talk: Callable[[Gateway], Awaitable[T]]) -> T:
    async def run() -> T:
        headers = {"webmcp-gateway-client": "1", **({"authorization": f"Bearer {token}"} if token else {})}
        async with Connections(resolver=Loopback()) as connections:
            return await talk(Gateway(connections, (url or _console(path)).rstrip("/"), headers))

    try:
        return asyncio.run(run())
    except Refusal as error:  # of the connection
        raise Unusable(f"the gateway does not answer: {error.detail}") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unusable(f"the gateway does not answer as one: {error}") from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(0) from None


def _console(path: Path) -> str:
    try:
        return load_config(path, LenientEnvironment()).server.origins.console
    except DocumentError as error:
        raise Unusable(f"{error}\nor say where the console is with --url") from error


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status < REFUSED:
        return
    try:
        answer = await response.json(content_type=None)
        detail = answer["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"status {response.status}"
    raise Unusable(f"the gateway refuses: {visible(str(detail))}")
