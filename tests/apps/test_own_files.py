"""The files of an app's site are served to its views, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from gateway.apps import CARRIED, own_file, own_files
from tests.apps.packing import write
from tests.mcp.mounts import UI
from tests.world import World, running

PAGE = "<!doctype html><img src=data:,>"


def test_the_files_by_their_urls(tmp_path: Path) -> None:
    """Files are found as on a static server; hidden files, and files outside the folder, are not."""
    folder = write(tmp_path / "app", index__html=PAGE, img_of_a__png=b"png")
    for name in ("a b.txt", "ä.txt", ".env", ".git/config", "x%2fy.txt", "a b/index.html"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("", "utf-8")
    (tmp_path / "secret.txt").write_text("", "utf-8")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    assert sorted(own_files(folder)) == [
        "/",
        "/%C3%A4.txt",
        "/a%20b.txt",
        "/a%20b/",
        "/a%20b/index.html",
        "/img/a.png",
        "/index.html",
        "/x%252fy.txt",
    ]


def test_links_lead_nowhere_else(tmp_path: Path) -> None:
    """Links to themselves, and a page that is a link out of the folder, are not served."""
    folder = write(tmp_path / "app", a__txt="")
    (tmp_path / "secret.html").write_text("secret", "utf-8")
    (folder / "index.html").symlink_to(tmp_path / "secret.html")
    (folder / "turning.txt").symlink_to("turning.txt")
    assert sorted(own_files(folder)) == ["/a.txt"]


@pytest.mark.parametrize("swapped", ["a.txt", "inner"])
def test_a_link_that_comes_later_leads_nowhere_else(tmp_path: Path, swapped: str) -> None:
    """A file or parent folder that is replaced by a link out of the folder at run time is not followed."""
    folder, outside = write(tmp_path / "app", a__txt="mine", inner_of_a__txt="mine"), tmp_path / "outside"
    write(outside, a__txt="secret")
    url = "/a.txt" if swapped == "a.txt" else "/inner/a.txt"
    path = own_files(folder)[url]
    answer = own_file(path, "GET", url, 100)
    assert answer is not None
    assert answer.body == b"mine"
    (folder / swapped).rename(tmp_path / "before")
    (folder / swapped).symlink_to(outside / "a.txt" if swapped == "a.txt" else outside)
    assert own_file(path, "GET", url, 100) is None


async def test_a_large_file_of_the_app_is_its_own_too(tmp_path: Path) -> None:
    """The policy limits what backends answer; what no message to a view can hold is refused with its reason."""
    folder = write(tmp_path / "app", index__html=PAGE)
    (folder / "large.txt").write_bytes(b"x" * 6 * 2**20)
    (folder / "too-large.txt").write_bytes(b"x" * (CARRIED + 1))
    async with running(tmp_path, source=folder) as world:
        assert (await fetch(world, "/large.txt", "HEAD"))["headers"]["content-length"] == str(6 * 2**20)
        refused = await fetch(world, "/too-large.txt", "GET")
        assert (refused["status"], refused["headers"]["gateway-reason"]) == (502, "response-too-large")
        assert world.arrived() == []


def test_an_app_of_one_file_has_no_folder(tmp_path: Path) -> None:
    """The other files in its folder are not served."""
    assert own_files(write(tmp_path, index__html=PAGE, other__txt="") / "index.html") == {}


async def fetch(world: World, url: str, method: str = "GET") -> dict[str, Any]:
    """The answer to a view's fetch."""
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        result = await client.call_tool("http_request", {"url": url, "method": method})
        assert result.structured_content is not None
        return dict(result.structured_content)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_view_fetches_a_file_of_its_own_site(tmp_path: Path, method: str) -> None:
    """The policy does not name it: it is a file of the app itself; the query is ignored."""
    folder = write(tmp_path / "app", index__html=PAGE, assets_of_a__json='{"a": 1}')
    async with running(tmp_path, source=folder) as world:
        answer = await fetch(world, "/assets/a.json?v=1", method)
        assert (answer["status"], answer.get("body")) == (200, {"a": 1} if method == "GET" else None)
        assert isinstance(headers := answer["headers"], dict)
        assert headers.get("content-length") == ("8" if method == "HEAD" else None)
        assert world.arrived() == []


@pytest.mark.parametrize(
    ("url", "method"),
    [
        ("/assets/a.json", "POST"),
        ("/assets/../assets/a.json", "GET"),
        ("/assets/%61.json", "GET"),
        ("//assets/a.json", "GET"),
        ("/.env", "GET"),
        ("/../policy.yaml", "GET"),
    ],
)
async def test_anything_else_is_for_the_policy(tmp_path: Path, url: str, method: str) -> None:
    """Other methods, other spellings of the path, and hidden files are left to the policy."""
    folder = write(tmp_path / "app", index__html=PAGE, assets_of_a__json='{"a": 1}', **{"__env": "SECRET=1"})
    async with running(tmp_path, source=folder) as world:
        assert (await fetch(world, url, method))["status"] in (400, 403)
