"""`doctor --url` through real proxies: with the files of deploy/ it finds nothing, with one line changed that line."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gateway.cli import main
from gateway.cli.deployment import deployment_problems
from gateway.config import Config
from gateway.errors import StartError
from gateway.stores.sealing import new_key
from tests.callers.issuer import issuer
from tests.callers.people import AUTH
from tests.deploy.proxies import PROXIES, Deployed, deployed, read_renamed
from tests.oidc.provider import oidc_provider
from tests.world import read_config, running


async def problems(place: Deployed, config: Config | None = None, url: str = "") -> list[str]:
    """The problems that the command reports."""
    return await deployment_problems(config or place.world.config, url or place.mcp, place.ca)


@pytest.mark.parametrize("proxy", PROXIES)
async def test_the_shipped_files_have_no_problem(tmp_path: Path, proxy: str) -> None:
    """Nothing is found, also with an issuer."""
    async with deployed(tmp_path, proxy) as place, oidc_provider([]) as provider:
        assert await problems(place) == []
        await place.restart(AUTH.format(issuer=provider.issuer))
        assert await problems(place) == []


FAULTS = {
    "host without port": ("Host            $http_host;", "Host $host;", "Host $http_host"),
    "another host": ("proxy_set_header Host            $http_host;", "", "Host $http_host"),
    "no upgrade": ("proxy_set_header Upgrade         $http_upgrade;", "", "$http_upgrade"),
    "buffering": (
        "proxy_buffering         off;", "proxy_ignore_headers X-Accel-Buffering;", "proxy_buffering off",
    ),
    "address of the client's choice": (
        "proxy_set_header X-Forwarded-For $remote_addr;", "", "X-Forwarded-For $remote_addr",
    ),
    "small bodies": ("client_max_body_size 0;", "", "client_max_body_size 0"),
    "no gateway": ("server 127.0.0.1:8080", "server 127.0.0.1:1", "proxy_pass"),
    "a missing site": ("mcp.gw.localhost console.gw.localhost", "mcp.gw.localhost", "the console: "),
}  # fmt: skip


@pytest.mark.parametrize("fault", list(FAULTS))
async def test_one_changed_line_is_found(tmp_path: Path, fault: str) -> None:
    """The problem names the line of nginx."""
    before, after, remedy = FAULTS[fault]
    async with deployed(tmp_path, "nginx", changed=(before, after)) as place:
        found = await problems(place)
        assert any(remedy in problem for problem in found), found
        assert fault == "a missing site" or "server_name" not in str(found), found  # no remedy that fits less


async def test_a_proxy_that_gives_up_before_an_answer_is_found_by_waiting(tmp_path: Path) -> None:
    """The problem says after how long; a proxy that waits longer has none."""
    lines = ("proxy_read_timeout      1h;", "proxy_read_timeout      2s;")
    async with deployed(tmp_path, "nginx", changed=lines) as place:
        assert await problems(place) == []
        config = place.world.config
        (problem,) = await deployment_problems(config, place.mcp, place.ca, silence=4)
        assert re.search(r"the proxy waited for \d+ s and answered 504. nginx: proxy_read_timeout 1h", problem), problem
    (again := tmp_path / "again").mkdir()
    async with deployed(again, "nginx") as place:
        assert await deployment_problems(place.world.config, place.mcp, place.ca, silence=1) == []


async def test_an_own_authority_that_is_not_named_is_found(tmp_path: Path) -> None:
    """The problem names the option of the command, and not the settings of other faults."""
    async with deployed(tmp_path, "caddy") as place:
        found = await deployment_problems(place.world.config, place.mcp, None)
    assert found
    assert all("name its certificate with --authorities FILE" in one and "DNS" not in one for one in found), found


async def test_settings_that_do_not_fit_are_found(tmp_path: Path) -> None:
    """Another public address, http behind https, an unnamed proxy, an issuer that nobody answers for, another key."""
    async with deployed(tmp_path, "caddy") as place:
        config = place.world.config
        assert any("public_url: https://other.test" in one for one in await problems(place, url="https://other.test"))
        origins = dataclasses.replace(config.server.origins, console=place.console.replace("https", "http"))
        plain = dataclasses.replace(config, server=dataclasses.replace(config.server, origins=origins))
        assert any(f"write console: {place.console}" in one for one in await problems(place, plain))
        unnamed = dataclasses.replace(config, server=dataclasses.replace(config.server, trusted_proxies=()))
        assert any("trusted_proxies: [127.0.0.1]" in one for one in await problems(place, unnamed))
        await place.restart(AUTH.format(issuer="http://127.0.0.1:1"))
        assert any("the issuer http://127.0.0.1:1 cannot be used" in one for one in await problems(place))
        (tmp_path / "other.key").write_text(new_key())
        (tmp_path / "other.key").chmod(0o600)
        other = dataclasses.replace(config.encryption_key, file=tmp_path / "other.key")
        assert any(
            "another key" in one for one in await problems(place, dataclasses.replace(config, encryption_key=other))
        )
        missing = dataclasses.replace(config.encryption_key, file=tmp_path / "missing.key")
        with pytest.raises(StartError, match="start the gateway first"):
            await problems(place, dataclasses.replace(place.world.config, encryption_key=missing))
        assert not (tmp_path / "missing.key").exists()


async def test_dedicated_origins_must_lead_to_the_gateway_too(tmp_path: Path) -> None:
    """Without their line in the proxy they do not; with it, the domain's place in the Public Suffix List is named."""
    async with deployed(tmp_path, "nginx") as place:
        await give_frames(place)
        found = await problems(place)
        assert any("the dedicated origins of cart: " in one and "server.origins.dedicated" in one for one in found), (
            found
        )
    names = ("*.apps.localhost;", "*.apps.localhost *.frames.localhost;")
    (again := tmp_path / "again").mkdir()
    async with deployed(again, "nginx", changed=names) as place:
        await give_frames(place)
        (problem,) = await problems(place)
    assert problem.startswith("server.origins.dedicated: frames.localhost is not on the Public Suffix List"), problem


async def give_frames(place: Deployed) -> None:
    """Give the cart dedicated origins, as the comment in deploy/gateway.yaml has them."""
    file = place.world.folder / "gateway.yaml"
    written = yaml.safe_load(file.read_text("utf-8"))
    (line,) = re.findall("# dedicated: (.+)", read_renamed("gateway.yaml"))
    written["server"]["origins"]["dedicated"] = f"{line}:{place.port}"
    written["apps"]["cart"]["sandbox"] = "dedicated"
    file.write_text(yaml.safe_dump(written), "utf-8")
    await place.world.gateway.stop()
    place.world.config = read_config(place.world.folder)
    await place.world.start_gateway()


@pytest.mark.parametrize(("ahead", "words"), [(90.0, "behind that of"), (-90.0, "ahead of that of"), (0.0, "")])
async def test_a_clock_that_is_off_is_found(tmp_path: Path, ahead: float, words: str) -> None:
    """The issuer's answers say what time it is there; the problem names the remedy, and what is still accepted."""
    async with issuer() as there, running(tmp_path, extra=AUTH.format(issuer=there.url)) as world:
        there.ahead = ahead
        found = [one for one in await deployment_problems(world.config, world.url, None) if "clock" in one]
    assert len(found) == bool(words)
    for problem in found:
        assert re.match(rf"the clock of this machine is (8|9)\d s {words} {there.url}: synchronise it", problem)
        assert "auth[].skew, 30 s" in problem


async def test_the_command(tmp_path: Path) -> None:
    """It prints the problems of files and of the deployment, and exits with 1."""
    async with deployed(tmp_path, "nginx") as place:
        place.world.folder.chmod(0o700)
    arguments = ["doctor", "--config", str(tmp_path / "gateway.yaml"), "--url", place.mcp]
    runner = CliRunner(env={"SHOP_SECRET": "x"})
    result = await asyncio.to_thread(runner.invoke, main, arguments)
    assert result.exit_code == 1
    assert "cannot be reached" in result.output  # the proxy has ended
    result = await asyncio.to_thread(runner.invoke, main, [*arguments[:-1], "mcp.example.com"])
    assert result.exit_code == 2
    assert "write one such as http" in result.output
