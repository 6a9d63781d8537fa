"""pyproject.toml declares each dependency that the code imports, bounded where it uses private parts."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import StreamWriter
from aiohttp.web import StreamResponse
from aiohttp.web_protocol import RequestHandler
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gateway.doors.responses import NamelessHandler
from gateway.mcp.sessions import ResumableSessions

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
RUN = [Requirement(text) for text in PROJECT["dependencies"]]
EXTRAS = [Requirement(text) for texts in PROJECT["optional-dependencies"].values() for text in texts]

NOT_IMPORTED = {
    "aiosqlite": "the driver that SQLAlchemy loads for sqlite URLs",
    "asyncpg": "the driver that SQLAlchemy loads for postgresql URLs",
}
"""Declared packages that no module imports, each with the reason."""

OURS = {"gateway", "plugins", "examples", "tests", "benchmarks", "scripts", "hatch_build", "board"}
"""Modules of this repository, also those of examples that run in a separate folder."""

LATER = {"compression"}
"""Modules of a later Python's standard library, which backports provide before; each is imported only for that."""


def _manager() -> StreamableHTTPSessionManager:
    return StreamableHTTPSessionManager(Server("named"))


PRIVATE: dict[str, tuple[str, Callable[[], object]]] = {
    "_reading_paused": ("aiohttp", lambda: RequestHandler),
    "_pause_reading_for_buffer": ("aiohttp", lambda: RequestHandler),
    "_resume_reading_for_buffer": ("aiohttp", lambda: RequestHandler),
    "_payload": ("aiohttp", lambda: ResponseHandler(cast(Any, None))),
    "_upgraded": ("aiohttp", lambda: ResponseHandler(cast(Any, None))),
    "_handle_stateful_request": ("mcp", _manager),
    "_session_owners": ("mcp", _manager),
    "_server_instances": ("mcp", _manager),
    "_task_group": ("mcp", _manager),
    "_lifespan_state": ("mcp", _manager),
    "_create_event_data": ("mcp", lambda: StreamableHTTPServerTransport("session")),
    "_event_store": ("mcp", lambda: StreamableHTTPServerTransport("session")),
    "_mint_priming_event": ("mcp", lambda: StreamableHTTPServerTransport("session")),
    "_request_streams": ("mcp", lambda: StreamableHTTPServerTransport("session")),
    "_pending": ("mcp", lambda: JSONRPCDispatcher(cast(Any, None), cast(Any, None))),
    "_lowlevel_server": ("mcp", lambda: MCPServer("named")),
}
"""Private attributes of packages that the gateway uses: the package, and an object that must have them."""

SET: dict[str, tuple[str, Callable[[], object]]] = {
    "_replay_events": ("mcp", lambda: StreamableHTTPServerTransport("session")),
    "_headers_buf": ("aiohttp", lambda: StreamWriter(cast(Any, None), cast(Any, None))),
    "_send_headers_immediately": ("aiohttp", lambda: StreamResponse),
}
"""Private attributes that the gateway sets, which makes them look like its own."""

OVERRIDDEN = ("_admit_session", "_discard_session", "_serve_opening_request")
"""Private methods of the SDK's session manager that the gateway's own replaces."""

STANDARD = {
    "_Decompress": "the type of `zlib.decompressobj()`, named in annotations alone",
    "_exit": "the documented end of a process at once, of `os`",
    "_mapping": "the documented view of a row in SQLAlchemy",
    "_transport": "of an asyncio process, read with a default",
}
"""Private names that need no upper bound, each with the reason."""


def sources(*folders: str) -> Iterator[str]:
    """Yield the text of all modules in these folders of the repository."""
    for file in (file for folder in folders for file in (ROOT / folder).rglob("*.py")):
        if "node_modules" not in file.parts:
            yield file.read_text("utf-8")


NAMED = r"[\w.]+(?: +as +\w+)?"
IMPORT = re.compile(rf"^ *(?:from +([\w.]+) +import\b|import +({NAMED}(?:, *{NAMED})*) *(?:#.*)?$)", re.MULTILINE)
"""An import statement, or a line of a text that looks like one."""


@cache
def imports_of(*folders: str) -> frozenset[str]:
    """Return the top-level names of foreign packages that these folders import, also for types only.

    A module is parsed if it seems to import a package that no module before it imports: to parse all takes long.
    """
    found: set[str] = set()
    known = set(sys.stdlib_module_names) | OURS | LATER
    for text in sources(*folders):
        parts = {part for pair in IMPORT.findall(text) for part in pair if part}
        seeming = {name.split()[0].partition(".")[0] for part in parts for name in part.split(",")}
        if seeming - known - found - {""}:
            found |= {name.partition(".")[0] for name in imported(ast.parse(text))} - known
    return frozenset(found)


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the modules that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def distributions(*folders: str) -> dict[str, set[str]]:
    """Return for each foreign import of these folders the distributions that provide it, by canonical name."""
    provided = packages_distributions()
    return {name: {str(canonicalize_name(one)) for one in provided.get(name, [name])} for name in imports_of(*folders)}


def names(requirements: list[Requirement]) -> set[str]:
    """Return the canonical names of these requirements."""
    return {str(canonicalize_name(requirement.name)) for requirement in requirements}


@pytest.mark.parametrize("folder", ["gateway", "plugins"])
def test_what_the_gateway_imports_is_declared(folder: str) -> None:
    """A package is not imported only because another one requires it."""
    allowed = names(RUN) | (names(EXTRAS) & {"opentelemetry-sdk"})  # the extra `otlp`
    undeclared = {name: found for name, found in distributions(folder).items() if not found & allowed}
    assert undeclared == {}


def test_what_tests_and_benchmarks_import_is_declared() -> None:
    """In the dependencies or in an extra."""
    declared = names(RUN) | names(EXTRAS)
    found = distributions("tests", "benchmarks", "examples", "scripts")
    assert {name: by for name, by in found.items() if not by & declared} == {}


def test_what_is_declared_is_imported() -> None:
    """Or has its reason."""
    used = {one for found in distributions("gateway").values() for one in found}
    assert names(RUN) - used == set(NOT_IMPORTED)


def private_names() -> Iterator[str]:
    """Yield the private attributes that the gateway uses and does not define itself."""
    nodes = [node for text in sources("gateway") for node in ast.walk(ast.parse(text))]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr not in own:
            yield node.attr
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
            # `super()._name(…)` of a class that overrides it
            function = node.value.func
            if isinstance(function, ast.Name) and function.id == "super" and node.attr.startswith("_"):
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            name = node.args[1]
            if isinstance(name, ast.Constant) and str(name.value).startswith("_"):
                yield str(name.value)


def test_every_private_part_that_is_used_is_named_here() -> None:
    """Names of the language itself (`__name__`) are not private."""
    used = {name for name in private_names() if not name.startswith("__")}
    assert used == PRIVATE.keys() | STANDARD.keys()


@pytest.mark.parametrize("name", PRIVATE | SET)
def test_a_private_part_is_there(name: str) -> None:
    """In the installed version."""
    _, owner = (PRIVATE | SET)[name]
    assert hasattr(owner(), name)


def test_a_method_that_is_overridden_takes_what_it_took() -> None:
    """aiohttp calls `NamelessHandler.handle_error` when its parser refuses a request."""
    ours, theirs = (inspect.signature(owner.handle_error) for owner in (NamelessHandler, RequestHandler))
    assert list(ours.parameters) == list(theirs.parameters)
    assert "self.handle_error(" in inspect.getsource(RequestHandler)


@pytest.mark.parametrize("package", sorted({package for package, _ in PRIVATE.values()}))
def test_a_package_whose_private_parts_are_used_has_an_upper_bound(package: str) -> None:
    """Another version may have other ones."""
    (requirement,) = [one for one in RUN if canonicalize_name(one.name) == package]
    assert any(specifier.operator in ("<", "<=", "==", "~=") for specifier in requirement.specifier)


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_what_is_overridden_is_there(name: str) -> None:
    """The SDK would call nothing of a name that it no longer has."""
    assert callable(getattr(_manager(), name))
    assert name in vars(ResumableSessions)
