"""The gateway's own tokens, without a gateway."""

from __future__ import annotations

import pytest

from gateway.callers.tokens import TokenGrant, capability_problem, name_problem, parse_token, principal, token_text
from gateway.errors import Unidentified

TOKEN = token_text("a" * 12, "s" * 43).reveal()


def grant(**more: object) -> TokenGrant:
    """The grant of the token."""
    said = {"id": "a" * 12, "name": "t", "capabilities": frozenset({"mcp"}), "person": "alice", "created": 0.0}
    return TokenGrant(**{**said, "expires": 100.0, "digest": parse_token(TOKEN).digest, **more})  # type: ignore[arg-type]  # by name


def test_a_good_token_names_its_person() -> None:
    """The client is the token."""
    found = principal(parse_token(TOKEN), grant(), 99.0)
    assert (found.id, found.shared, found.expires) == ("local|token:t|alice", False, 100.0)


def test_a_shared_token_names_nobody() -> None:
    """It belongs to no person."""
    found = principal(parse_token(TOKEN), grant(person=None), 99.0)
    assert (found.subject, found.shared, found.person) == ("", True, "local|token:t|")


@pytest.mark.parametrize("wrong", [{"expires": 99.0}, {"revoked": 1.0}, {"digest": b"x" * 32}, {"digest": b""}])
def test_a_wrong_token_is_refused_in_the_same_words(wrong: dict[str, object]) -> None:
    """Any defect, and an unknown token, have the same message."""
    with pytest.raises(Unidentified, match="unknown, revoked or expired"):
        principal(parse_token(TOKEN), grant(**wrong), 99.0)
    with pytest.raises(Unidentified, match="unknown, revoked or expired"):
        principal(parse_token(TOKEN), None, 99.0)


@pytest.mark.parametrize("text", ["", "wmg_", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), f" {TOKEN}", f"{TOKEN}\n"])
def test_what_is_written_otherwise_is_no_token(text: str) -> None:
    """Every character counts."""
    with pytest.raises(Unidentified, match="not a token"):
        parse_token(text)


def test_a_token_does_not_show() -> None:
    """Neither its text nor its hash is in the `repr` of a token or grant."""
    assert TOKEN not in repr(token_text("a" * 12, "s" * 43))
    assert repr(parse_token(TOKEN).digest) not in repr(grant())


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (["mcp"], None),
        (["bridge:cart", "app"], None),
        (["approve", "admin", "audit:read"], None),
        (["mcp", "approve"], "cannot have approve"),
        (["mcp", "admin"], "cannot have admin"),
        (["mcp:cart"], "must be one of mcp, "),
        (["approve:cart"], "must be one of mcp, "),
        (["bridge:"], "must be one of mcp, "),
        (["root"], "--can root: must be one of mcp, "),
        (["mcp,approve"], "; for several repeat --can"),
    ],
)
def test_capabilities_that_do_not_go_together_are_refused(wanted: list[str], problem: str | None) -> None:
    """A model's client must not hold the capability to answer for the person."""
    found = capability_problem(wanted)
    assert found is None if problem is None else problem in (found or "")


@pytest.mark.parametrize("name", ["", " a", "a|b", "a\nb", "é", "a" * 65, "<b>", "-x"])
def test_names_are_plain(name: str) -> None:
    """Names appear in ids, logs and tables."""
    assert name_problem(name) is not None
