"""`token`: creation, list, revocation, and login links."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from tests.cli.test_serve import write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A gateway with token authentication, and a secret that is not set."""
    write(tmp_path, 8080)
    with (tmp_path / "gateway.yaml").open("a") as file:
        file.write("auth: [token]\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> Result:
    """The command, with the configuration of `folder`."""
    return CliRunner().invoke(main, ["token", *arguments, "--config", str(folder / "gateway.yaml")])


def test_a_token_is_shown_once_and_listed_without_it(folder: Path) -> None:
    """Its name, expiry and capabilities are listed; then it is revoked."""
    made = json.loads(run(folder, "create", "claude", "--can", "mcp", "--expires", "30d", "--json").stdout)
    listed = run(folder, "list", "--json").stdout
    (found,) = json.loads(listed)
    assert made["token"] not in listed
    assert (found["name"], found["state"], found["capabilities"], found["person"]) == (
        "claude",
        "good",
        ["mcp"],
        "local",
    )
    assert round(found["expires"] - found["created"]) == 30 * 86400
    assert run(folder, "revoke", "claude").exit_code == 0
    assert json.loads(run(folder, "list", "--json").stdout) == []
    (ended,) = json.loads(run(folder, "list", "--all", "--json").stdout)
    assert ended["state"] == "revoked"
    assert run(folder, "revoke", "claude").exit_code == 2


@pytest.mark.parametrize("key", ["private_key", "client_secret"])
@pytest.mark.parametrize("source", ["${env:NOT_SET}", "${file:not-there.pem}"])
def test_secrets_of_backends_are_not_needed(folder: Path, key: str, source: str) -> None:
    """Secrets of credentials may be unset; the database's URL may not."""
    file = folder / "gateway.yaml"
    credential = f'  shop: {{type: client_credentials, issuer: https://i.test, client_id: c, {key}: "{source}"}}\n'
    file.write_text(f"{file.read_text()}credentials:\n{credential}")
    assert run(folder, "create", "claude").exit_code == 0
    assert "claude" in run(folder, "list").output
    assert run(folder, "link").output.startswith("http")
    assert run(folder, "revoke", "claude").exit_code == 0
    file.write_text(file.read_text() + 'stores: {database: "${env:NO_DATABASE}"}\n')
    refused = run(folder, "list")
    assert refused.exit_code == 2
    assert "NO_DATABASE is not set" in refused.output
    checked = CliRunner().invoke(main, ["policy", "check", "--config", str(file)])
    assert checked.exit_code == 0, checked.output


def test_a_token_may_be_for_one_app_and_for_nobody(folder: Path) -> None:
    """`--app` narrows `bridge` and `app`, and `--shared` makes a token without a person."""
    run(folder, "create", "kiosk", "--can", "bridge", "--can", "mcp", "--app", "page", "--shared")
    (found,) = json.loads(run(folder, "list", "--json").stdout)
    assert (found["capabilities"], found["person"]) == (["bridge:page", "mcp"], None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a|b"], "must be"),
        (["a", "--can", "root"], "--can root: must be one of mcp, "),
        (["a", "--can", "mcp", "--can", "approve"], "Make two tokens"),
        (["a", "--app", "pag"], '--app pag: must be one of page, did you mean "page"?'),
        (["a", "--expires", "soon"], "--expires soon"),
        (["a", "--expires", "400d"], "at most 366d"),
        (["a", "--expires", "0s"], "--expires 0s"),
        (["a", "--person", ""], "must be"),
    ],
)
def test_what_makes_no_sense_makes_no_token(folder: Path, arguments: list[str], said: str) -> None:
    """The reason is printed, with exit code 2."""
    result = run(folder, "create", *arguments)
    assert (result.exit_code, said in result.output) == (2, True), result.output
    assert json.loads(run(folder, "list", "--all", "--json").stdout) == []


def test_a_name_is_taken_once(folder: Path) -> None:
    """It is free again after the revocation, so that `revoke` is unambiguous."""
    assert run(folder, "create", "claude").exit_code == 0
    assert "revoke it first" in run(folder, "create", "claude").output
    run(folder, "revoke", "claude")
    assert run(folder, "create", "claude").exit_code == 0


def test_a_gateway_without_tokens_says_so(folder: Path) -> None:
    """No token is made that would not be accepted."""
    text = (folder / "gateway.yaml").read_text().replace("auth: [token]", "auth: [none]")
    (folder / "gateway.yaml").write_text(text)
    for command in (["create", "a"], ["link"]):
        result = run(folder, *command)
        assert (result.exit_code, "write auth: [token]" in result.output) == (2, True)


def test_a_link_leads_to_the_console(folder: Path) -> None:
    """Each link is different."""
    first, second = (run(folder, "link", "--person", "alice").stdout for _ in range(2))
    assert first.startswith("http://gateway.localhost:8080/login/link?code=")
    assert first != second
