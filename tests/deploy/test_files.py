"""The other files of deploy/: the image's steps, run as processes; the unit, by systemd itself; compose.yaml."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import hatch_build
from gateway.config import load_config
from tests.deploy.proxies import DEPLOY
from tests.world import free_port

ROOT = DEPLOY.parent
AS_ROOT = ("useradd", "install --directory")
"""The steps that change the system outside of the program's folder."""


def steps(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, with their arguments in one line."""
    joined = re.sub(r"\\\n\s*", "", text)
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def context() -> list[str]:
    """The files that `docker build` sends: those of the repository that .dockerignore admits."""
    ignored = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and line[0] != "#"]
    assert ignored[0] == "*"
    admitted = [line[1:] for line in ignored if line.startswith("!")]
    dropped = [line for line in ignored[1:] if not line.startswith("!")]
    found = [
        path for name in admitted for path in ((ROOT / name).rglob("*") if (ROOT / name).is_dir() else [ROOT / name])
    ]
    names = [path.relative_to(ROOT) for path in found if path.is_file()]
    return [str(name) for name in names if not any(_drops(pattern, name) for pattern in dropped)]


def _drops(pattern: str, name: Path) -> bool:
    if pattern.startswith("**/"):
        return pattern[3:] in name.parts
    return name.is_relative_to(pattern)


@pytest.fixture
def image() -> Iterator[Path]:
    """An empty folder beside those of the tests, which are searched for secrets: it gets our own sources."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.soak
def test_the_image_s_steps(image: Path) -> None:
    """Each RUN and COPY in an empty folder, as processes; then its command serves an app, and the check finds it."""
    faulthandler.cancel_dump_traceback_later()  # what is installed here takes minutes on a busy machine
    sources, home = image / "context", {name: str(image / name[1:]) for name in ("/opt", "/src")}
    (image / "src").mkdir()
    for name in context():
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, sources / name)
    environment = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    environment |= {"PIP_NO_COMPILE": "1", "LOGIN_SECRET": "x"}  # compiling takes half of the time
    run: dict[str, list[str]] = {}
    for instruction, rest in steps((DEPLOY / "Dockerfile").read_text("utf-8")):
        here = re.sub(r"(?<![\w.-])/(opt|src)", lambda found: home[found[0]], rest).replace("--no-cache-dir ", "")
        if instruction == "COPY" and "--from" not in rest:
            copied = sources / rest.split()[0]
            if copied.is_dir():
                shutil.copytree(copied, image / "src", dirs_exist_ok=True)
            else:
                shutil.copy(copied, image / "src")
        elif instruction == "RUN" and not rest.startswith(AS_ROOT):
            subprocess.run(["/bin/sh", "-ec", here], cwd=image / "src", env=environment, check=True)
        elif instruction == "ENV":
            environment |= dict(setting.split("=", 1) for setting in here.replace("$PATH", environment["PATH"]).split())
        elif instruction in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
            run[instruction] = json.loads(rest[rest.index("[") :])
    (image / "src").rename(image / "gone")
    programs, listen, admin = image / "opt" / "webmcp-gateway" / "bin", free_port(), free_port()
    write_shipped(image, (":8080", f":{listen}"), (":9090", f":{admin}"))
    command, check = [
        [word.replace("/etc/webmcp-gateway", str(image)).replace(":9090", f":{admin}") for word in words]
        for words in ([*run["ENTRYPOINT"], *run["CMD"]], run["HEALTHCHECK"])
    ]
    with subprocess.Popen([programs / command[0], *command[1:]], env=environment, stdout=subprocess.PIPE) as serving:
        try:
            assert serving.stdout is not None
            assert b"Packing hello" in serving.stdout.readline()
            assert b"is ready" in serving.stdout.readline()
            checked = subprocess.run([programs / check[0], *check[1:]], env=environment, check=False)
            assert checked.returncode == 0
        finally:
            serving.terminate()
    assert serving.returncode == 0


def write_shipped(folder: Path, *changes: tuple[str, str]) -> None:
    """Write the gateway.yaml of deploy/, with changes and without waiting at its end, and the app that it names."""
    text = (DEPLOY / "gateway.yaml").read_text("utf-8")
    for before, after in (("/var/lib/webmcp-gateway", str(folder / "state")), *changes):
        assert before in text
        text = text.replace(before, after)
    (folder / "gateway.yaml").write_text(text.replace("server:\n", "server:\n  drain: {announce: 0s}\n"), "utf-8")
    (folder / "apps/hello").mkdir(parents=True)
    (folder / "policies").mkdir()
    page = '<!doctype html><title>Hello</title><script type="module" src="main.js"></script>'
    (folder / "apps/hello/index.html").write_text(page, "utf-8")
    (folder / "apps/hello/main.js").write_text('import {word} from "./word.js"; document.title = word;', "utf-8")
    (folder / "apps/hello/word.js").write_text('export const word = "linked by Node";', "utf-8")
    (folder / "policies/hello.yaml").write_text("version: 1\n", "utf-8")


def test_the_image_has_all_sources() -> None:
    """The files that the build reads are admitted by .dockerignore; of the tests, only what the wheel contains."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [project["readme"], *project["license-files"], "hatch_build.py", "pyproject.toml", "requirements.lock"]
    needed += ["browser/package-lock.json", "gateway/app.py"]
    sent = context()
    assert [name for name in needed if name not in sent] == []
    folders = {str(parent) for name in sent for parent in Path(name).parents}
    assert {"gateway", "browser", *hatch_build.BUNDLED} <= folders
    assert {name.split("/")[1] for name in sent if name.startswith("tests/")} == {"attacks"}


def test_the_units() -> None:
    """systemd knows each of the settings of service and socket."""
    program = shutil.which("systemd-analyze")
    assert program is not None
    units = [str(DEPLOY / f"webmcp-gateway.{kind}") for kind in ("service", "socket")]
    verified = subprocess.run([program, "verify", "--man=no", *units], capture_output=True, text=True, check=False)
    complaints = [line for line in verified.stderr.splitlines() if "webmcp-gateway." in line]
    assert [line for line in complaints if "is not executable" not in line] == []


def test_the_installation_of_the_documentation(tmp_path: Path) -> None:
    """Its commands lay the files where the unit expects them, and run its program as its user with its secrets.

    What changes the system is left out: the user, the services; and the environment, which the image's steps make.
    Where systemd does not run, the options of systemd-run are compared with the unit, and with its help.
    """
    text = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    install = text[text.index("## Install") : text.index("- **Container**")]
    written = "\n".join(re.findall(r"^```\n(.*?)^```$", install, re.MULTILINE | re.DOTALL))
    unit = (DEPLOY / "webmcp-gateway.service").read_text("utf-8")
    user, command, secrets = (
        found[1].split()[0].lstrip("-")
        for key in ("User", "ExecStart", "EnvironmentFile")
        if (found := re.search(rf"^{key}=(.*)$", unit, re.MULTILINE))
    )
    assert re.search(rf"^useradd .* {user}$", written, re.MULTILINE)
    script = re.sub(r"^(useradd|systemctl|journalctl|/).*$", "", written, flags=re.MULTILINE)
    (called,) = re.findall(r"systemd-run (.*?) -- (\S+)", script)
    assert called[1] == command
    options = called[0].split()
    known = subprocess.run(["systemd-run", "--help"], capture_output=True, text=True, check=True).stdout
    assert [option for option in options if not re.search(rf"{option.split('=')[0]}\b", known)] == []
    assert {f"--uid={user}", f"--property=EnvironmentFile=-{secrets}", "--wait", "--pipe"} <= set(options)
    script = re.sub(r"systemd-run .*? -- ", "", script)
    for folder in ("etc/systemd/system", "opt/webmcp-gateway/bin"):
        (tmp_path / folder).mkdir(parents=True)
    program = tmp_path / command[1:]
    program.write_text('#!/bin/sh\necho "$@"\n', "utf-8")
    program.chmod(0o755)
    here = re.sub(r"(?<![\w.])/(etc|opt)/", rf"{tmp_path}/\1/", script)
    done = subprocess.run(["/bin/sh", "-ec", here], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"doctor --config {tmp_path}/etc/webmcp-gateway/gateway.yaml\n"
    files = {str(path.relative_to(tmp_path / "etc")) for path in (tmp_path / "etc").rglob("*") if path.is_file()}
    units = {f"systemd/system/webmcp-gateway.{kind}" for kind in ("service", "socket")}
    assert files == {"webmcp-gateway/gateway.yaml", "webmcp-gateway/secrets.env", *units}
    assert (tmp_path / secrets[1:]).stat().st_mode & 0o777 == 0o600


def read_compose(name: str) -> dict[str, Any]:
    """A Compose file, whose services find the networks, volumes and services that they name."""
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text("utf-8"))
    services = compose["services"]
    for service in services.values():
        assert set(service["networks"]) <= set(compose["networks"])
        named = {mount["source"] for mount in service.get("volumes", ()) if mount["type"] == "volume"}
        assert named <= set(compose["volumes"])
        assert set(service.get("depends_on", ())) <= set(services)
    for store in {"postgres", "redis"}.intersection(services):
        assert all(compose["networks"][network]["internal"] for network in services[store]["networks"])
    return compose


@pytest.mark.parametrize(
    ("name", "nodes"), [("compose.single.yaml", ["gateway"]), ("compose.yaml", ["node-1", "node-2", "node-3"])]
)
def test_compose(name: str, nodes: list[str]) -> None:
    """Its services find each other, the proxy is trusted, and the gateway's container cannot be written to."""
    compose = read_compose(name)
    services = compose["services"]
    states = []
    for node in nodes:
        service = services[node]
        assert set(service["networks"]) & set(services["caddy"]["networks"]) >= {"proxy"}
        assert service["read_only"]
        assert service.get("hostname", node) == node
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        states += [mount["source"] for mount in service["volumes"] if mount["target"] == "/var/lib/webmcp-gateway"]
    assert len({*states}) == len(nodes)
    caddy = services["caddy"]["environment"]
    assert caddy["GATEWAY"] == " ".join(f"{node}:8080" for node in nodes)
    if len(nodes) > 1:
        (subnet,) = compose["networks"]["proxy"]["ipam"]["config"]
        server = yaml.safe_load((DEPLOY / "gateway.cluster.yaml").read_text("utf-8"))["server"]
        assert server["trusted_proxies"] == [subnet["subnet"]]
        assert caddy["GATEWAY_HEALTH"] == "/readyz"


def test_each_container_gets_its_own_secrets(tmp_path: Path) -> None:
    """The commands of the page make the files that the services name, which only their owner can read."""
    text = (ROOT / "docs/deployment.md").read_text("utf-8")
    section = text[text.index("**Compose.**") : text.index("**Kubernetes.**")]
    (commands,) = re.findall(r"^```\n(mkdir.*?)^```$", section, re.MULTILINE | re.DOTALL)
    shutil.copy(DEPLOY / "gateway.cluster.yaml", tmp_path)
    subprocess.run(["sh", "-ec", re.sub(r"(?m)^chown .*$", "", commands)], cwd=tmp_path, check=True)
    made = {file.name: file for file in tmp_path.glob("*.env")}
    assert {file.stat().st_mode & 0o777 for file in made.values()} == {0o600}
    variables = {
        name: {line.partition("=")[0] for line in file.read_text("utf-8").splitlines()} for name, file in made.items()
    }
    services = read_compose("compose.yaml")["services"]
    assert variables[services["postgres"]["env_file"]] == {"POSTGRES_PASSWORD"}
    assert variables[services["redis"]["env_file"]] == {"REDIS_PASSWORD"}
    needed = {*re.findall(r"\$\{env:(\w+)\}", (DEPLOY / "gateway.cluster.yaml").read_text("utf-8"))}
    assert {name: variables[services[name]["env_file"]] for name in services if name.startswith("node")} == {
        f"node-{number}": needed for number in (1, 2, 3)
    }
    alone = read_compose("compose.single.yaml")["services"]
    assert alone["postgres"]["env_file"] != alone["gateway"]["env_file"]


def test_the_configuration_of_the_files(tmp_path: Path) -> None:
    """gateway.yaml is valid, and the proxies, the unit and it agree on names and addresses."""
    write_shipped(tmp_path)
    server = load_config(tmp_path / "gateway.yaml", {"LOGIN_SECRET": "x"}).server
    for name in ("nginx.conf", "Caddyfile"):
        proxy = (DEPLOY / name).read_text("utf-8")
        assert f"{server.host}:{server.port}" in proxy
        assert "mcp.example.com" in proxy
        assert "console.example.com" in proxy
        assert "*.example.net" in proxy
    sockets = re.findall(r"^ListenStream=(.*)$", (DEPLOY / "webmcp-gateway.socket").read_text("utf-8"), re.MULTILINE)
    assert sockets == [f"{host}:{port}" for host, port in ((server.host, server.port), server.admin or ("", 0))]
