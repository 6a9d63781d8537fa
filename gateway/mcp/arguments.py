"""The arguments of the gateway's own tools, read one by one with errors that name the field."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.errors import Reason, Refusal
from gateway.model import Json


def refuse_others(arguments: Mapping[str, Json], *known: str) -> None:
    """Raise `Refusal` (`bad-request`) for an argument that is not `known`."""
    if other := sorted(set(arguments) - set(known)):
        allowed = f"allowed: {', '.join(known)}" if known else "this tool takes none"
        raise _refusal(f"unknown argument {other[0][:64]!r}; {allowed}.")


def text(arguments: Mapping[str, Json], name: str) -> str:
    """Return a required, non-empty text. Raises `Refusal` (`bad-request`)."""
    value = optional_text(arguments, name)
    if not value:
        raise _refusal(f"`{name}` is missing; it must be a string.")
    return value


def optional_text(arguments: Mapping[str, Json], name: str) -> str | None:
    """Return a text, or None. Raises `Refusal` (`bad-request`)."""
    value = arguments.get(name)
    if value is None or isinstance(value, str):
        return value
    raise _refusal(f"`{name}` must be a string.")


def flag(arguments: Mapping[str, Json], name: str) -> bool:
    """Return a boolean, by default False. Raises `Refusal` (`bad-request`)."""
    value = arguments.get(name, False)
    if isinstance(value, bool):
        return value
    raise _refusal(f"`{name}` must be true or false.")


def mapping(arguments: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """Return an object, by default empty. Raises `Refusal` (`bad-request`)."""
    value = arguments.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise _refusal(f"`{name}` must be an object.")


def _refusal(detail: str) -> Refusal:
    return Refusal(Reason.BAD_REQUEST, detail)
