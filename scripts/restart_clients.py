"""Tries which MCP clients continue after a restart: `python scripts/restart_clients.py FOLDER` prints the table.

The clients are installed into FOLDER as they are published: `node_modules` of npm, and a virtual environment of Python
for each client that needs one. What is installed already stays; delete a part of FOLDER to get its newest version.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.cli.test_serve import write  # noqa: E402  # the tests are no installed package
from tests.whole.restarts import Proxy, restartable  # noqa: E402

TRIES = 10
"""Calls after a restart, a person's patience: each may take five seconds."""

NODE_LOOP = """
const rl = (await import('node:readline')).createInterface({input: process.stdin});
await connect(); await call(); console.log('ok');
const failed = (error) => console.log('no ' + String(error).split('\\n')[0]);
for await (const _ of rl) await call().then(() => console.log('ok'), failed);
"""

SDK = """
const {Client} = await import('%(module)s'); const {StreamableHTTPClientTransport} = await import('%(transport)s');
const client = new Client({name: 'restart', version: '1'});
client.onerror = () => undefined;
const connect = () => client.connect(new StreamableHTTPClientTransport(new URL(process.argv[1])));
const call = () => client.callTool({name: 'list_view_tools', arguments: {}}, %(schema)s{timeout: 5000});
"""

AI = """
const {createMCPClient, experimental_createMCPClient} = await import('@ai-sdk/mcp');
let tools;
const connect = async () => {
  const create = createMCPClient ?? experimental_createMCPClient;
  const client = await create({transport: {type: 'http', url: process.argv[1]}});
  tools = await client.tools();
};
const call = () => tools.list_view_tools.execute({}, {toolCallId: '1', messages: []});
"""

PYTHON_LOOP = """
import asyncio, sys
async def loop(call):
    await call(); print("ok", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        try:
            await asyncio.wait_for(call(), 5); print("ok", flush=True)
        except Exception as error:
            print("no", repr(error)[:120], flush=True)
"""

PYTHON_SDK = """
from mcp import Client
async def main():
    async with Client(sys.argv[1], mode="%(mode)s") as client:
        await loop(lambda: client.call_tool("list_view_tools", {}))
asyncio.run(main())
"""

FASTMCP = """
from fastmcp import Client
async def main():
    async with Client(sys.argv[1]) as client:
        await loop(lambda: client.call_tool("list_view_tools", {}))
asyncio.run(main())
"""

PYTHON_SDK_1 = """
from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client
async def main():
    async with streamablehttp_client(sys.argv[1]) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        await loop(lambda: session.call_tool("list_view_tools", {}))
asyncio.run(main())
"""

LANGCHAIN = """
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
async def main():
    client = MultiServerMCPClient({"gateway": {"transport": "streamable_http", "url": sys.argv[1]}})
    async with client.session("gateway") as session:
        tool = next(tool for tool in await load_mcp_tools(session) if tool.name == "list_view_tools")
        await loop(lambda: tool.ainvoke({}))
asyncio.run(main())
"""

PYDANTIC = """
from pydantic_ai.mcp import MCPToolset
async def main():
    async with MCPToolset(sys.argv[1]) as server:
        await loop(lambda: server.direct_call_tool("list_view_tools", {}))
asyncio.run(main())
"""

AGENTS = """
from agents.mcp import MCPServerStreamableHttp
async def main():
    async with MCPServerStreamableHttp({"url": sys.argv[1]}) as server:
        await loop(lambda: server.call_tool("list_view_tools", {}))
asyncio.run(main())
"""


ENVIRONMENTS = {
    "mcp1": "mcp<2",
    "fastmcp": "fastmcp",
    "mcp-proxy": "mcp-proxy",
    "langchain": "langchain-mcp-adapters",
    "pydantic-ai": "pydantic-ai-slim[mcp]",
    "openai-agents": "openai-agents",
}
"""The packages of each virtual environment."""

PACKAGES = (
    "@modelcontextprotocol/client",
    "@modelcontextprotocol/sdk",
    "mcp-remote",
    "supergateway",
    "@ai-sdk/mcp",
    "zod",
)
"""The packages that are installed into `node_modules`; `zod` is a peer of others."""


@dataclass(frozen=True)
class Program:
    """A client: its name, the package whose version is shown, and its command, to which the URL is added.

    `stdio`: it carries MCP itself.
    """

    name: str
    package: str
    command: tuple[str, ...]
    stdio: bool = False

    def version(self, folder: Path) -> str:
        """Return the installed version."""
        manifest = folder / "node_modules" / self.package / "package.json"
        if manifest.exists():
            return str(json.loads(manifest.read_text("utf-8"))["version"])
        environment = next((name for name in ENVIRONMENTS if self.command[0].startswith(f"{folder}/{name}/")), "")
        interpreter = f"{folder}/{environment}/bin/python" if environment else sys.executable
        source = f"import importlib.metadata as m; print(m.version({self.package!r}))"
        return subprocess.run([interpreter, "-c", source], capture_output=True, text=True, check=True).stdout.strip()


def install(folder: Path) -> None:
    """Install the clients that are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, package in ENVIRONMENTS.items():
        if not (folder / name / "installed").exists():
            print("installing", package, file=sys.stderr, flush=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder / name], check=True)
            subprocess.run([folder / name / "bin/python", "-m", "pip", "install", "--quiet", package], check=True)
            (folder / name / "installed").touch()
    if not (folder / "node_modules").exists():
        print("installing", *PACKAGES, file=sys.stderr, flush=True)
        subprocess.run(["npm", "install", "--silent", "--prefix", folder, *PACKAGES], check=True)


def programs(folder: Path) -> list[Program]:
    """Return the clients in the folder."""

    def node(name: str, package: str, source: str) -> Program:
        return Program(name, package, ("node", "--input-type=module", "-e", source + NODE_LOOP))

    def python(name: str, package: str, environment: str, source: str) -> Program:
        interpreter = str(folder / environment / "bin/python") if environment else sys.executable
        return Program(name, package, (interpreter, "-W", "ignore", "-c", PYTHON_LOOP + source))

    def pipe(name: str, *command: str) -> Program:
        return Program(name, name, command, stdio=True)

    first = {"module": "@modelcontextprotocol/sdk/client/index.js", "schema": "undefined, "}
    first["transport"] = "@modelcontextprotocol/sdk/client/streamableHttp.js"
    second = {"module": "@modelcontextprotocol/client", "transport": "@modelcontextprotocol/client", "schema": ""}
    binaries = folder / "node_modules/.bin"
    return [
        python("Python SDK 2, with a handshake", "mcp", "", PYTHON_SDK % {"mode": "legacy"}),
        python("Python SDK 2, 2026-07-28", "mcp", "", PYTHON_SDK % {"mode": "2026-07-28"}),
        python("Python SDK 1", "mcp", "mcp1", PYTHON_SDK_1),
        node("TypeScript SDK 2", "@modelcontextprotocol/client", SDK % second),
        node("TypeScript SDK 1", "@modelcontextprotocol/sdk", SDK % first),
        python("FastMCP", "fastmcp", "fastmcp", FASTMCP),
        pipe("mcp-remote", str(binaries / "mcp-remote"), "URL", "--allow-http"),
        pipe("supergateway", str(binaries / "supergateway"), "--logLevel", "none", "--streamableHttp"),
        pipe("mcp-proxy", str(folder / "mcp-proxy/bin/mcp-proxy"), "--transport", "streamablehttp"),
        python("LangChain MCP adapters", "langchain-mcp-adapters", "langchain", LANGCHAIN),
        python("Pydantic AI", "pydantic-ai-slim", "pydantic-ai", PYDANTIC),
        python("OpenAI Agents SDK", "openai-agents", "openai-agents", AGENTS),
        node("AI SDK (Vercel)", "@ai-sdk/mcp", AI),
    ]


class Running:
    """A client that runs: each call is a line to it and a line from it."""

    def __init__(self, process: asyncio.subprocess.Process, program: Program) -> None:
        self._process = process
        self._program = program
        self._count = 0

    async def begin(self) -> None:
        """Wait until it has made its first call."""
        if self._program.stdio:
            info = {"name": "restart", "version": "1"}
            params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
            await self._asked("initialize", params, 60)
            self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
            await self._asked("tools/call", {"name": "list_view_tools", "arguments": {}}, 60)
        else:
            async with asyncio.timeout(60):
                line = await self._line()
                if line != "ok":
                    raise RuntimeError(line or (await self._errors()))

    async def call(self) -> str:
        """Return the failure of a call, "" if it has none."""
        try:
            if self._program.stdio:
                answer = await self._asked("tools/call", {"name": "list_view_tools", "arguments": {}}, 5)
                return str(answer.get("error", ""))
            self._write("call\n")
            async with asyncio.timeout(10):
                line = await self._line()
            return "" if line == "ok" else line or "it has ended"
        except TimeoutError:
            return "no answer"
        except (ConnectionError, EOFError):
            return "it has ended"

    async def _asked(self, method: str, params: Mapping[str, object], seconds: float) -> dict[str, object]:
        self._count += 1
        self._send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        async with asyncio.timeout(seconds):
            while line := await self._line():
                said = json.loads(line) if line.startswith("{") else {}
                if said.get("id") == self._count and "method" not in said:
                    return dict(said)
        raise EOFError

    def _send(self, message: Mapping[str, object]) -> None:
        self._write(json.dumps(message) + "\n")

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())

    async def _line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    async def _errors(self) -> str:
        assert self._process.stderr is not None
        return (await self._process.stderr.read()).decode()[-400:]


def _with(command: tuple[str, ...], url: str) -> list[str]:
    """Return a command with the URL at its place, which is at the end by default."""
    return [url if one == "URL" else one for one in (command if "URL" in command else (*command, "URL"))]


@asynccontextmanager
async def running(program: Program, url: str, folder: Path) -> AsyncIterator[Running]:
    """Start a client at the gateway of `url`."""
    pipe = asyncio.subprocess.PIPE
    errors = asyncio.subprocess.DEVNULL if program.stdio else pipe
    process = await asyncio.create_subprocess_exec(
        *_with(program.command, url),
        cwd=folder,
        stdin=pipe,
        stdout=pipe,
        stderr=errors,
        limit=2**24,
        start_new_session=True,
    )
    try:
        yield Running(process, program)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # a wrapper's child would keep the pipes open
        await process.wait()


@dataclass
class Trial:
    """A client on its gateway; `key` is the query of its URL."""

    program: Program
    key: str
    client: Running | None = None
    outcomes: list[str] = field(default_factory=list)


async def begin(trial: Trial, url: str, folder: Path, stack: AsyncExitStack) -> None:
    """Start a client, and let it call."""
    try:
        client = await stack.enter_async_context(running(trial.program, f"{url}?{trial.key}", folder))
        await client.begin()
        trial.client = client
    except (OSError, TimeoutError, EOFError, RuntimeError) as error:
        trial.outcomes = [f"not started: {error!r}"[:300]] * 2
        print(trial.program.name, trial.outcomes, file=sys.stderr, flush=True)


async def look(trial: Trial, proxy: Proxy, before: Mapping[str, int]) -> None:
    """Note whether the client goes on."""
    if trial.client is None:
        return
    for attempt in range(TRIES):
        failure = await trial.client.call()
        if not failure:
            said = "yes" if not attempt else f"yes, after {attempt} failed"
            again = proxy.handshakes[trial.key] > before.get(trial.key, 0)
            trial.outcomes.append(f"{said}, with a new handshake" if again else said)
            print(trial.program.name, trial.outcomes, file=sys.stderr, flush=True)
            return
        await asyncio.sleep(0.2)
    trial.outcomes.append(f"no: {failure}"[:200])
    print(trial.program.name, trial.outcomes, file=sys.stderr, flush=True)


async def main(folder: Path, only: str) -> None:
    """Print the table."""
    install(folder)
    trials = [Trial(one, f"c{number}") for number, one in enumerate(programs(folder)) if only in one.name]
    with tempfile.TemporaryDirectory() as place:
        write(Path(place), 1)
        more = "apps: {page: {source: index.html, policy: policy.yaml}}"
        async with restartable(Path(place), more, waiting=True) as gateway, AsyncExitStack() as stack:
            assert gateway.proxy is not None
            for trial in trials:
                await begin(trial, gateway.url, folder, stack)
            for number in (signal.SIGTERM, signal.SIGKILL):
                before = dict(gateway.proxy.handshakes)
                await gateway.restart(number)
                for trial in trials:
                    await look(trial, gateway.proxy, before)
    print("| client | version | stopped (SIGTERM) | killed (SIGKILL) |\n|---|---|---|---|")
    for trial in trials:
        print(f"| {trial.program.name} | {trial.program.version(folder)} | {' | '.join(trial.outcomes)} |")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else ""))
