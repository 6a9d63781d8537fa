"""Opens the credentials of a configuration for one command; the gateway may be running."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import click

from gateway.assembly.credentials import Accounts
from gateway.backends.connect import Connections
from gateway.cli.group import Unusable
from gateway.config import load_config
from gateway.credentials import AuthorizationCode, Basic, Fixed, OAuth, Plugged, Spec
from gateway.hooks import Hooks
from gateway.model import LOCAL, Principal
from gateway.stores.sql import Database

T = TypeVar("T")

person_option = click.option(
    "--person", default=LOCAL.person, show_default=True, help="The person whose account it is, as in `credential list`."
)


def run(path: Path, work: Callable[[Accounts], Awaitable[T]]) -> T:
    """Return the result of `work`. Raises DocumentError, StartError, and `Unusable` if the database is down."""
    config = load_config(path, os.environ)

    async def opened() -> T:
        async with Connections() as connections, Database(config.database.reveal()) as database:
            accounts = Accounts(config, connections, database, Hooks(config.plugins, config.path.parent))
            await accounts.start()
            return await work(accounts)

    try:
        return asyncio.run(opened())
    except OSError as error:
        raise Unusable(str(error)) from error


def credential_named(accounts: Accounts, name: str) -> Spec:
    """Return the credential `name`. Raises `Unusable`."""
    if name not in accounts.specs:
        known = ", ".join(accounts.specs) or "none"
        raise Unusable(f"there is no credential {name!r} in {accounts.path}; there is {known}")
    return accounts.specs[name]


def kind(spec: Spec) -> str:
    """Return its type as in gateway.yaml."""
    match spec:
        case OAuth(grant=grant):
            words = type(grant).__name__
            return "".join(f"_{char.lower()}" if char.isupper() else char for char in words).lstrip("_")
        case Fixed():
            return "header"
        case Basic():
            return "basic"
        case Plugged(type=type_):
            return type_


def is_connected(spec: Spec) -> bool:
    """Return whether each person connects a separate account."""
    return isinstance(spec, OAuth) and isinstance(spec.grant, AuthorizationCode)


def principal(person: str) -> Principal:
    """Return the principal of a person such as `local|local`."""
    issuer, _, subject = person.partition("|")
    return Principal(issuer.replace("%7C", "|").replace("%25", "%"), "cli", subject)
