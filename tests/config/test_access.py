"""`access` of apps and upstreams, and `view_clients` of `auth`: what is read, and what is refused with its line."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.callers.entitlements import AccessRule, Entitlements, widens
from gateway.callers.methods import OAuthIssuer, TokenAuth
from gateway.config import Config, load_config
from gateway.errors import DocumentError
from gateway.model import LOCAL, Json, Principal

OAUTH = "auth: [{type: oauth, issuer: https://login.example.com}]\n"


def load_rule(folder: Path, access: str, auth: str = OAUTH) -> Config:
    """Return the configuration of one app with this rule."""
    (folder / "web").mkdir(exist_ok=True)
    (folder / "web" / "index.html").write_text("<!doctype html>", "utf-8")
    (folder / "policy.yaml").write_text("version: 1\n", "utf-8")
    text = f"{auth}apps:\n  pay:\n    source: web\n    policy: policy.yaml\n    access: {access}\n"
    (folder / "gateway.yaml").write_text(text, "utf-8")
    return load_config(folder / "gateway.yaml", {})


def rule(folder: Path, access: str) -> AccessRule:
    """Return the rule."""
    found = load_rule(folder, access).apps["pay"].access
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("access", "message"),
    [
        ("hr", "access: must be a mapping, not the text"),
        ("[hr]", "access: must be a mapping, not a list"),
        ("{}", "name `roles`, `when` or both"),
        ("{roles: hr}", "roles: must be a list, not the text"),
        ("{roles: []}", "roles: name at least one role"),
        ("{roles: [3]}", "roles: must be text, not the number 3"),
        ('{roles: [" hr"]}', "has spaces around it"),
        (r'{roles: ["hr\u200b"]}', "characters that cannot be seen"),
        ("{role: [hr]}", 'unknown key "role", did you mean "roles"?'),
        ("{when: 'request.method == \"GET\"'}", "request is unknown here (known: principal)"),
        ("{when: 'app == \"pay\"'}", "app is unknown here (known: principal)"),
        ("{when: 'principal.name == \"a\"'}", "principal.name is unknown here"),
        ("{when: 'principal.roles.exists('}", "when: "),
        ("{when: true}", "when: must be text"),
    ],
)
def test_a_wrong_rule_is_refused(tmp_path: Path, access: str, message: str) -> None:
    """With its line and the remedy; nothing is open instead."""
    with pytest.raises(DocumentError) as refused:
        load_rule(tmp_path, access)
    assert any(message in str(problem) and problem.line == 6 for problem in refused.value.problems)


def test_roles_where_no_caller_has_any_are_refused(tmp_path: Path) -> None:
    """Without authentication, and with the gateway's own tokens, nobody could use the app."""
    for auth in ("", "auth: [token]\n"):
        with pytest.raises(DocumentError, match="no caller has a role here"):
            load_rule(tmp_path, "{roles: [hr]}", auth)
    assert load_rule(tmp_path, "{when: 'principal.id == \"local|local|local\"'}", "").apps["pay"].access is not None


PERSON = replace(LOCAL, issuer="https://login.example.com", subject="ann")


@pytest.mark.parametrize(
    ("roles", "admitted"),
    [({"hr"}, True), ({"HR"}, False), ({"hr "}, False), (set(), False), ({"é"}, True), ({"e\u0301"}, False)],
)
def test_roles_are_compared_character_by_character(tmp_path: Path, roles: set[str], admitted: bool) -> None:
    """Without folding of case and without normalisation: twins of a name are other names."""
    found = rule(tmp_path, "{roles: [hr, é]}").exclusion(replace(PERSON, roles=frozenset(roles)))
    assert (found is None) is admitted


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"level": 3, "country": "DE"}, None),
        ({"level": 2, "country": "DE"}, "it is false"),
        ({"level": "3", "country": "DE"}, "it failed"),
        ({"level": [3], "country": "DE"}, "it failed"),
        ({"level": None, "country": "DE"}, "it failed"),
        ({"country": "DE"}, "is not there"),
        ({}, "is not there"),
        ({"Level": 3, "country": "DE"}, "differs in case"),
        ({"level": 3, "country": "DE" * 40_000}, "larger than conditions may read"),
    ],
)
def test_claims_of_odd_types_exclude(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, claims: dict[str, Json], why: str | None
) -> None:
    """An error of the condition excludes like false, and the log says why, once for each caller."""
    one = rule(tmp_path, "{when: 'principal.claims.level >= 3 && principal.claims.country == \"DE\"'}")
    rules, caller = Entitlements(), replace(PERSON, claims=claims)
    rules.replace({"pay": (one,)})
    with caplog.at_level(logging.WARNING):
        assert [rules.admits(caller, "pay") for _ in range(2)] == [why is None] * 2
    found = one.exclusion(caller)
    assert (found.why if found is not None else None) == why or (
        found is not None and why is not None and why in found.why
    )
    errors = why not in (None, "it is false")
    assert len(caplog.messages) == errors
    assert all(caller.id in message and "pay" in message for message in caplog.messages)


def test_the_gateway_itself_is_no_caller(tmp_path: Path) -> None:
    """Its own requests, as for snapshots, need no access."""
    rules = Entitlements()
    rules.replace({"pay": (rule(tmp_path, "{roles: [hr]}"),)})
    assert rules.admits(Principal("gateway", "gateway", "reload"), "pay")
    assert not rules.admits(PERSON, "pay")


def test_a_rule_that_admits_others_widens(tmp_path: Path) -> None:
    """Two conditions cannot be compared, so another one counts as wider."""
    few, more = rule(tmp_path, "{roles: [hr]}"), rule(tmp_path, "{roles: [hr, boss]}")
    told, other = rule(tmp_path, "{roles: [hr], when: 'true'}"), rule(tmp_path, "{when: 'true'}")
    assert [widens(few, more), widens(few, None), widens(told, few), widens(told, other)] == [True] * 4
    assert [widens(more, few), widens(None, few), widens(few, told), widens(few, rule(tmp_path, "{roles: [hr]}"))] == [
        False
    ] * 4


def test_clients_of_views_are_read(tmp_path: Path) -> None:
    """For both kinds of authentication whose clients have ids."""
    auth = (
        "auth:\n  - {type: oauth, issuer: https://login.example.com, view_clients: [desk]}\n"
        "  - {type: token, view_clients: [laptop]}\n"
    )
    oauth, own = load_rule(tmp_path, "{roles: [hr]}", auth).auth
    assert isinstance(oauth, OAuthIssuer)
    assert isinstance(own, TokenAuth)
    assert (oauth.view_clients, own.view_clients) == (frozenset({"desk"}), frozenset({"laptop"}))
