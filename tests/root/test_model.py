"""The domain types: who a principal is, and what it may do."""

import pytest

from gateway.model import Principal, person_of, with_path


@pytest.mark.parametrize(
    ("held", "capability", "app", "allowed"),
    [
        ("bridge", "bridge", "cart", True),
        ("bridge:cart", "bridge", "cart", True),
        ("bridge:cart", "bridge", "other", False),
        ("bridge:cart", "bridge", None, False),
        ("app:approve", "approve", None, False),
        ("mcp", "approve", None, False),
    ],
)
def test_a_capability_is_for_everything_or_for_one_app(
    held: str, capability: str, app: str | None, allowed: bool
) -> None:
    """No capability implies another."""
    assert Principal("i", "c", "s", capabilities=frozenset({held})).may(capability, app) is allowed


def test_ids_cannot_be_made_to_meet() -> None:
    """Subjects of real servers contain `|`; a client whose id does must not become another subject's."""
    assert Principal("i", "c", "d|e").id != Principal("i", "c|d", "e").id
    assert Principal("i|c", "d", "e").id != Principal("i", "c", "d|e").id
    assert Principal("i", "c|d", "e").id != Principal("i", "c%7Cd", "e").id


def test_a_person_is_the_same_at_every_client() -> None:
    """Issuer and subject identify a person, also in the record's id of a principal; a shared token is no person."""
    one, other = Principal("https://i", "console", "auth0|7"), Principal("https://i", "desktop|2", "auth0|7")
    assert one.person == other.person == person_of(other.id) == "https://i|auth0|7"
    assert Principal("https://j", "console", "auth0|7").person != one.person
    assert Principal("https://i", "console", "auth0|7", shared=True).person != one.person


def test_a_principal_stays_the_same_with_other_roles() -> None:
    """A new token of the same person at the same client finds their views again."""
    assert Principal("i", "c", "s", roles=frozenset({"a"})) == Principal("i", "c", "s", expires=1.0)


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://127.0.0.1:21361", "http://127.0.0.1:21361/"),
        ("https://a.example?q=/x", "https://a.example/?q=/x"),
        ("http://[::1]:9#part", "http://[::1]:9/#part"),
        ("wss://a.example", "wss://a.example/"),
        ("https://a.example/", "https://a.example/"),
        ("https://a.example/b?c", "https://a.example/b?c"),
        ("https://a.example//", "https://a.example//"),
    ],
)
def test_an_empty_path_is_the_root(url: str, sent: str) -> None:
    """A non-empty path stays unchanged."""
    assert with_path(url) == sent
