"""Shared fixtures, and checks of everything that the gateways under test write."""

import gc
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from aiohttp import web_app
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from examples.cart_app import auth_server
from gateway.bounds import report_exceeded
from scripts.bounds_doc import declared_bounds
from tests.attacks.world import Stores
from tests.leaks import taps
from tests.leaks.files import look_through
from tests.leaks.marks import MARK
from tests.leaks.watch import FOLDER, TAPS, Watch, read_findings
from tests.postgresql import postgresql
from tests.redis_server import redis_server
from tests.world import World, running

BROWSER = "tests/browser/"
"""The browser tests are CPU-bound: in a distributed run two processes start with them, the others reach them last."""


LONG = {
    "tests/browser/test_allowed_published_apps.py",
    "tests/browser/test_upstream_apps.py",
    "tests/cli/test_attack.py",
    "tests/cli/test_stop.py",
    "tests/interop/test_conformance.py",
    "tests/whole/test_kills.py",
}
"""Files of few tests that take long. Files of few tests come last, so these would keep one process busy at the end."""

QUICK = {
    "apps",
    "callers",
    "config",
    "contract",
    "documents",
    "eventloop",
    "fastpath",
    "jsontext",
    "mcp",
    "mux",
    "policy",
    "root",
    "scripts",
    "views",
}
"""Folders of unit tests, which need neither a browser nor servers: `make check` runs these."""

MARKS = {
    "browser": "browser",
    "corpus": "browser",
    "wpt": "browser",
    "interop": "interop",
    "oidc": "interop",
    **dict.fromkeys(QUICK),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--cluster`."""
    parser.addoption("--cluster", action="store_true", help="attack two nodes behind a balancer instead of one process")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by its folder. One in a browser that fails is run once more, and listed: see CONTRIBUTING."""
    root = Path(__file__).parent
    for item in items:
        mark = MARKS.get(item.path.relative_to(root).parts[0], "slow")
        if mark is not None:
            item.add_marker(mark)
        if mark == "browser":
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_configure(config: pytest.Config) -> None:
    """Start collecting what gateways write before the first test."""
    if not hasattr(config, "workerinput"):  # the first process of the run
        folder = os.environ[FOLDER] = tempfile.mkdtemp(prefix="leaks")
        config.add_cleanup(lambda: shutil.rmtree(folder))
    TAPS.watch = Watch(Path(os.environ[FOLDER]))
    taps.install()
    settings.register_profile("tests", settings(deadline=None))  # machines are busy
    settings.load_profile("tests")
    auth_server.TokenGenerator.get_jti = lambda self, *_: f"{MARK}{os.urandom(8).hex()}"


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Hand out whole files: each process of a distributed run gets the next file when it has finished one."""
    return _BrowserApart(config, log)


class _BrowserApart(LoadFileScheduling):
    def _assign_work_unit(self, node: WorkerController) -> None:
        browser = node.gateway.id in ("gw0", "gw1")
        files = [name for name in self.workqueue if name.startswith(BROWSER) == browser]
        if files:
            self.workqueue.move_to_end(next((name for name in files if name in LONG), files[0]), last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collection, which would take two fifths of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Freeze the objects that live by now: else each full garbage collection in a long run traverses all tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=["gateway", "aiohttp"])
def http_client(request: pytest.FixtureRequest) -> str:
    """Each value of `server.http_client`."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def no_secret_is_written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Check that no secret appears in what gateways answered, logged, counted, traced, printed or left in a file."""
    yield
    look_through(tmp_path_factory.getbasetemp(), TAPS.watch, TAPS.cookies)
    found, _ = read_findings(Path(os.environ[FOLDER]))
    assert found == []


@pytest.fixture(scope="session", autouse=True)
def two_nodes(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--cluster`, each gateway of `tests.attacks.world` has two nodes, on one PostgreSQL and one Redis."""
    if not request.config.getoption("--cluster"):
        yield
        return
    with postgresql() as database, redis_server() as redis, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.attacks.world.TWO_NODES", [Stores(database, redis)])
        patch.setattr("tests.world.ONE_REQUEST_EACH", True)
        yield


@pytest.fixture(scope="module", autouse=True)
def applications_are_forgotten() -> Iterator[None]:
    """Let go of the applications that a module built: aiohttp caches the handlers of a thousand, and a worker grows."""
    yield
    web_app._cached_build_middleware.cache_clear()


@pytest.fixture(autouse=True)
def what_exceeds_a_bound_is_reported(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that each bound that a test exceeds by its marker is reported, as it is to log, metrics and audit log."""
    named = {name for mark in request.node.iter_markers("bound") for name in mark.args}
    heard: set[str] = set()
    with report_exceeded(lambda bound, by, client: heard.add(bound.what)):
        yield
    if named:
        assert {
            bound.what for bound in declared_bounds() if bound.what in named and not bound.uncounted
        } - heard == set()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """The cart example behind a gateway, with real servers."""
    async with running(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
async def shared_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The same for all tests of a file, none of which leaves state behind that another would see."""
    async with running(tmp_path_factory.mktemp("world")) as started:
        yield started
