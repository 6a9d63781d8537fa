"""What tests of every room share, and what looks at all that their gateways write."""

import gc
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from examples.cart_app import auth_server
from tests import beside
from tests.beside import pytest_runtestloop as pytest_runtestloop
from tests.beside import pytest_sessionfinish as pytest_sessionfinish
from tests.leaks import taps
from tests.leaks.marks import MARK
from tests.leaks.watch import FOLDER, TAPS, Watch
from tests.world import World, running

LAST = "test_no_secret_is_written_in_the_whole_run"


def pytest_configure(config: pytest.Config) -> None:
    """From the first test on."""
    if beside.is_beside():
        TAPS.watch = Watch(Path(os.environ[FOLDER]))
    else:
        folder = tempfile.mkdtemp(prefix="leaks")
        os.environ[FOLDER] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder))
        TAPS.watch = Watch()
    taps.install()
    settings.register_profile("tests", settings(deadline=None))  # machines are busy
    settings.load_profile("tests")
    auth_server.TokenGenerator.get_jti = lambda self, *_: f"{MARK}{os.urandom(8).hex()}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What looks at the whole run comes at its end; a run of all tests is divided among processes."""
    beside.divide(config, items, LAST)


def pytest_collection_finish() -> None:
    """What lives now lives on: without this each full collection in a long run walks all tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """The cart example behind a gateway, with real servers."""
    async with running(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
async def shared_world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The same for all tests of a file, which leave no trace in it that another would see."""
    async with running(tmp_path_factory.mktemp("world")) as started:
        yield started
