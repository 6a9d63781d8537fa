"""The board example on free ports: its backend and a gateway in front of its build."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.board_app import board
from gateway.app import build_app
from gateway.config import load_config
from tests.world import Server

EXAMPLE = Path(board.__file__).parent
WEB = EXAMPLE / "web"


def build_board() -> Path:
    """The board's build, as its author makes it; the first test process to need it builds it, once."""
    dist = WEB / "dist"
    with (WEB / "package-lock.json").open("rb") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not (WEB / "node_modules").is_dir():
            subprocess.run(["npm", "ci", "--silent"], cwd=WEB, check=True)
        made = dist / "index.html"
        if not made.is_file() or made.stat().st_mtime < _changed():
            subprocess.run(["npm", "run", "--silent", "build"], cwd=WEB, check=True, capture_output=True)
    return dist


def _changed() -> float:
    """The newest modification time of its sources."""
    sources = [*WEB.glob("*.*"), *(WEB / "src").rglob("*")]
    return max(source.stat().st_mtime for source in sources)


@dataclass(slots=True)
class Run:
    """A running backend and the gateway in front of it."""

    backend: Server
    gateway: Server

    @property
    def url(self) -> str:
        """The plain address of the gateway."""
        return f"http://localhost:{self.gateway.port}"

    @property
    def site(self) -> str:
        """The board's own origin."""
        return f"http://board.localhost:{self.gateway.port}"

    @property
    def api(self) -> str:
        """The backend itself."""
        return f"http://127.0.0.1:{self.backend.port}/api"


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Run]:
    """Run backend and gateway; `folder` holds the gateway's files."""
    run = Run(Server(), Server())
    config = (EXAMPLE / "gateway.yaml").read_text("utf-8")
    config = config.replace("127.0.0.1:8081", f"127.0.0.1:{run.gateway.port}").replace("web/dist", str(build_board()))
    (folder / "gateway.yaml").write_text(config, "utf-8")
    policy = (EXAMPLE / "policy.yaml").read_text("utf-8")
    (folder / "policy.yaml").write_text(policy.replace("127.0.0.1:9402", f"127.0.0.1:{run.backend.port}"), "utf-8")
    try:
        await run.backend.start(board.build_app())
        await run.gateway.start(build_app(load_config(folder / "gateway.yaml", {})))
        yield run
    finally:
        await run.gateway.stop()
        await run.backend.stop()
