"""The command `pack`."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from tests.apps.packing import write


def test_a_folder_becomes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is named after the folder, and a summary is printed."""
    write(tmp_path / "Web_App", index__html="<!doctype html><script src=a.js></script>", a__js="1")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["pack", "Web_App"])
    assert (done.exit_code, done.output.splitlines()[0].split("/")[:3]) == (0, ["web-app.html: ui:", "", "web-app"])
    assert "<script>1</script>" in (tmp_path / "web-app.html").read_text("utf-8")
    assert (tmp_path / "web-app.html").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("as_json", [True, False])
def test_what_cannot_be_packed_is_named(tmp_path: Path, as_json: bool) -> None:
    """With its place; the page is written without it."""
    folder = write(tmp_path / "app", index__html="<img src=gone.png>\n<script src=https://cdn.test/a.js></script>")
    output = tmp_path / "out.html"
    arguments = ["pack", str(folder), "--output", str(output), *(["--json"] if as_json else [])]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, output.exists()) == (0, True)
    told = json.loads(done.stdout)["warnings"] if as_json else done.stderr.splitlines()
    assert [warning.rpartition("index.html:")[2].partition(":")[0] for warning in told] == ["1", "2"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The message has no line and column, which a missing file cannot have."""
    (tmp_path / "empty").mkdir()
    for source, page in (("gone", "gone"), ("empty", "empty/index.html")):
        done = CliRunner().invoke(main, ["pack", str(tmp_path / source)])
        assert (done.exit_code, done.output.startswith(f"{tmp_path / page}: there is no such file: ")) == (2, True)


def test_a_script_that_no_browser_can_read(tmp_path: Path) -> None:
    """It is reported as an error, with its place; the page is written, since it works without that script."""
    folder = write(tmp_path / "app", index__html="<script src=a.js></script>", a__js="fine();\nlet a = ;")
    output = tmp_path / "out.html"
    done = CliRunner().invoke(main, ["pack", str(folder), "--output", str(output)])
    assert (done.exit_code, output.exists()) == (0, True)
    assert f"error: {folder / 'a.js'}:2:9: " in done.stderr


def test_what_is_said_of_a_file(tmp_path: Path) -> None:
    """Its exact size, the given title and base, and the effects of the policy are printed."""
    picture, frame = '<img src="/api/a.png"', '<iframe src="https://maps.example/"></iframe>'
    folder, output = write(tmp_path / "app", index__html=f"{picture}>{frame}"), tmp_path / "out.html"
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "version: 1\nframes: [https://maps.example]\nbackends: {a: {url: https://a.example}}\n"
        "routes: [{path: '/api/**', methods: [GET]}]\ntools: {look: {}, buy: {confirm: always}}\n",
        "utf-8",
    )
    more = ["--policy", str(policy), "--title", "My app", "--base", "/shop/", "--output", str(output)]
    plain = CliRunner().invoke(main, ["pack", str(folder), "--output", str(output)])
    assert (plain.exit_code, plain.stderr.count("warning: ")) == (0, 2)
    done = CliRunner().invoke(main, ["pack", str(folder), *more])
    said = r"([0-9,]+) bytes, of which ([0-9,]+) are the view runtime [^(]*\(([0-9,]+) gzipped\)"
    size = re.search(said, done.output)
    assert size is not None
    whole, ours, gzipped = (int(figure.replace(",", "")) for figure in size.groups())
    made = output.read_text("utf-8")
    runtime = made[: made.index("</script>", made.index('<meta name="webmcp-gateway"')) + len("</script>")].encode()
    assert (whole, ours, gzipped) == (output.stat().st_size, len(runtime), len(gzip.compress(runtime)))
    assert f"{picture} srcset=" in made
    assert made.endswith(frame)
    assert '"tools":["look"]' in made
    assert "&quot;title&quot;: &quot;My app&quot;, &quot;base&quot;: &quot;/shop/&quot;" in made
    as_json = json.loads(CliRunner().invoke(main, ["pack", str(folder), *more, "--json"]).stdout)
    assert as_json["meta"]["csp"]["frameDomains"] == ["https://maps.example"]


def test_a_tool_that_the_organisation_denies_is_not_listed(tmp_path: Path) -> None:
    """As in the gateway, whose configuration is beside the policy and names the organisation's."""
    folder, output = write(tmp_path / "app", index__html=""), tmp_path / "out.html"
    (tmp_path / "policy.yaml").write_text("version: 1\ntools: {look: {}, buy: {}}\n", "utf-8")
    (tmp_path / "all.yaml").write_text("version: 1\ntools: {buy: {deny: not here}}\n", "utf-8")
    (tmp_path / "gateway.yaml").write_text("policy: {organisation: all.yaml}\n", "utf-8")
    done = CliRunner().invoke(
        main, ["pack", str(folder), "--policy", str(tmp_path / "policy.yaml"), "--output", str(output)]
    )
    assert done.exit_code == 0, done.output
    assert '"tools":["look"]' in output.read_text("utf-8")


def test_an_id_that_no_app_can_have(tmp_path: Path) -> None:
    """The message says how to choose another."""
    done = CliRunner().invoke(main, ["pack", str(write(tmp_path / "1app", index__html=""))])
    assert (done.exit_code, "--app" in done.output) == (2, True)


def test_a_link_to_itself_is_no_app(tmp_path: Path) -> None:
    """The message is one line."""
    (tmp_path / "app").symlink_to("app")
    done = CliRunner().invoke(main, ["pack", str(tmp_path / "app")])
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    assert done.output.startswith(f"{tmp_path / 'app'}: there is no such file")
