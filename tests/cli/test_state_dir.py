"""`server.state_dir`: everything that the gateway writes is in one folder, whose problems are named with a remedy."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from gateway.cli.lock import file_system
from tests.cli.test_serve import COMMAND, process, ready, wait_exit, write
from tests.leaks.watch import environment
from tests.world import free_port


def set_state(folder: Path, state: Path, port: int) -> None:
    """Write the configuration of `write` with a state folder."""
    write(folder, port)
    text = (folder / "gateway.yaml").read_text().replace("}\n", f", state_dir: {state}}}\n", 1)
    (folder / "gateway.yaml").write_text(text)


@asynccontextmanager
async def mounted(folder: Path, *mounts: str, command: str = "serve") -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command in `folder` in its own mount namespace, after these commands."""
    script = "; ".join((*mounts, f"cd {shlex.quote(str(folder))}", f"exec {shlex.join(COMMAND)} {command}"))
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(
        "unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", script, env=environment(), stdout=pipe,
        stderr=pipe,
    )  # fmt: skip
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


def names(folder: Path) -> set[str]:
    """The files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


async def test_a_configmap_volume_is_read_and_its_swap_noticed(tmp_path: Path) -> None:
    """The folder is mounted read-only, as the kubelet lays it out; its `..data` link is replaced by another."""
    volume, state, port = tmp_path / "volume", tmp_path / "state", free_port()
    first, second = volume / "..2026_1", volume / "..2026_2"
    first.mkdir(parents=True)
    second.mkdir()
    set_state(first, state, port)
    with (first / "gateway.yaml").open("a") as file:
        file.write("plugins: [empty.py]\nauth: [token]\n")
    (first / "empty.py").write_text("")
    (volume / "..data").symlink_to(first.name)
    for name in os.listdir(first):
        (second / name).write_text((first / name).read_text())
        (volume / name).symlink_to(f"..data/{name}")
    (second / "policy.yaml").write_text('version: 1\nroutes: [{path: "/**", deny: "after the swap"}]\n')
    before = names(volume)
    read_only = f"mount --bind {volume} {volume}; mount -o remount,bind,ro {volume}"
    async with mounted(volume, read_only) as running, aiohttp.ClientSession() as http:
        lines = await ready(running, 5)
        assert lines[0].startswith("webmcp-gateway"), await wait_exit(running)
        (volume / "..data_tmp").symlink_to(second.name)
        os.rename(volume / "..data_tmp", volume / "..data")
        for path in first.iterdir():
            path.unlink()
        first.rmdir()
        assert running.stderr is not None
        async with asyncio.timeout(60):
            while "policy.yaml is in effect" not in (await running.stderr.readline()).decode():
                pass
        async with http.get(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200
        running.terminate()
        code, output = await wait_exit(running)
    assert (code, "Traceback" in output) == (0, False), output
    assert names(volume) == {name for name in before if not name.startswith(first.name)}
    assert {"gateway.db", "gateway.journal", "gateway.journal.key", "gateway.lock"} <= names(state)


UNUSABLE = {
    "size=32k": "No space left on device; make room on its disk",
    "ro,size=1m": "Read-only file system; mount it writable",
}
"""Options of file systems that are no state folder, and why."""


@pytest.mark.parametrize(("options", "reason"), UNUSABLE.items())
async def test_a_full_or_read_only_state_folder_is_refused(tmp_path: Path, options: str, reason: str) -> None:
    """The remedies are named before anything is written."""
    state = tmp_path / "state"
    state.mkdir()
    set_state(tmp_path, state, free_port())
    async with mounted(tmp_path, f"mount -t tmpfs -o {options} tmpfs {state}") as running:
        code, output = await wait_exit(running)
    assert code == 2, output
    assert f"cannot start: nothing can be written to the state folder {state}: {reason}" in output
    assert "server.state_dir" in output
    assert not names(state)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
async def test_a_state_folder_that_everybody_can_write_is_warned_of(tmp_path: Path, mode: int) -> None:
    """The gateway starts; where others may replace no file (in a folder like /tmp) nothing is said."""
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    set_state(tmp_path, state, free_port())
    async with process(tmp_path) as running:
        await ready(running, 1)
        running.terminate()
        code, output = await wait_exit(running)
    assert code == 0, output
    warning = f"everybody may write to the state folder {state}, and replace its files: chmod o-w {state}"
    assert (warning in output) is (mode == 0o777), output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_a_state_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """The owner of the folder could replace the gateway's files, or would not be able to read them later."""
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 12345, -1)
    set_state(tmp_path, state, free_port())
    async with process(tmp_path) as running:
        code, output = await wait_exit(running)
    assert code == 2, output
    assert f"{state} belongs to user 12345, and the gateway runs as root: run it as user 12345, or give it" in output
    assert f"chown -R root {state}" in output


async def test_two_gateways_do_not_share_a_state_folder(tmp_path: Path) -> None:
    """The second one names the process of the first, even with another configuration."""
    state = tmp_path / "state"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        set_state(tmp_path / name, state, free_port())
    async with process(tmp_path / "one") as first:
        await ready(first, 5)
        async with process(tmp_path / "two") as second:
            code, output = await wait_exit(second)
    assert code == 2, output
    assert f"runs already ({state / 'gateway.lock'}, process {first.pid}): end it, or give this one" in output


async def test_the_files_of_before_are_not_left_behind(tmp_path: Path) -> None:
    """With the setting unset they are used where they are; setting it asks to move them, and names the command."""
    write(tmp_path, free_port())
    async with process(tmp_path) as running:
        await ready(running, 5)
        running.terminate()
        await wait_exit(running)
    state = tmp_path / "state"
    set_state(tmp_path, state, free_port())
    async with process(tmp_path) as running:
        code, output = await wait_exit(running)
    assert code == 2, output
    command = output[output.index("mv ") :].splitlines()[0]
    assert {"gateway.db", "gateway.journal", "gateway.journal.key"} <= {
        Path(word).name for word in shlex.split(command)
    }
    moving = await asyncio.create_subprocess_shell(command)
    assert await moving.wait() == 0
    async with process(tmp_path) as running:
        lines = await ready(running, 5)
        assert lines[0].startswith("webmcp-gateway")
    assert not (tmp_path / "gateway.journal").exists()


def test_file_systems_of_other_machines_are_known() -> None:
    """The longest mount point that contains the folder counts."""
    mounts = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "40 22 0:44 / /srv rw,relatime shared:7 - nfs4 store:/srv rw,vers=4.2\n"
        "41 40 8:2 / /srv/local\\040disk rw - xfs /dev/sdb rw\n"
    )
    kinds = [file_system(Path(path), mounts) for path in ("/var/x", "/srv/gateway", "/srv/local disk/a", "/srvx")]
    assert kinds == ["ext4", "nfs4", "xfs", "ext4"]
