"""`pack --vendor` takes files of other sites into an app once, and later packs use no others."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner

from gateway.apps import pack
from gateway.apps.vendor import LOCK, vendor_folder
from gateway.backends.connect import Connections
from gateway.cli import main
from gateway.cli.pack import take_in
from tests.apps.packing import RUNTIME, write
from tests.world import Loopback, serving

FONT = b"wOF2 a font"


class Cdn:
    """A server of sheets, fonts, scripts and pictures, which remembers who asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def app(self) -> web.Application:
        """Its application."""

        async def answer(request: web.Request) -> web.Response:
            self.asked.append((request.path_qs, request.headers["user-agent"]))
            match request.path:
                case "/css2":
                    sheet = "@import 'more.css'; @font-face { font-family: f; src: url(/s/f?v=1#x) format('woff2') }"
                    return web.Response(text=sheet, content_type="text/css")
                case "/more.css":
                    return web.Response(text="p { background: url(p) }", content_type="text/css")
                case "/s/f":
                    return web.Response(body=FONT, content_type="font/woff2")
                case "/p":
                    return web.Response(body=b"png", content_type="image/png")
                case "/lib/main.js":
                    code = (
                        'import {name} from "./part.js"; export * from "/lib/other.js"; export const main = () => name'
                    )
                    return web.Response(text=code, content_type="text/javascript")
                case "/lib/part.js":
                    return web.Response(
                        text="export const name = 'part ' + import.meta.url", content_type="text/javascript"
                    )
                case "/lib/other.js":
                    return web.Response(text="export const other = 'other'", content_type="text/javascript")
                case "/moved.js":
                    raise web.HTTPFound("/x.js")
                case "/x.js":
                    return web.Response(text="ran('</script>')", content_type="text/javascript")
                case "/away.js":
                    raise web.HTTPFound("https://elsewhere.example/x.js")
                case "/large.js":
                    return web.Response(body=bytes(17 * 1024 * 1024), content_type="text/javascript")
                case _:
                    raise web.HTTPNotFound

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        return app


@pytest.fixture
async def cdn() -> AsyncIterator[tuple[Cdn, str]]:
    """A running server, and its origin."""
    made = Cdn()
    async with serving(made.app()) as port:
        yield made, f"http://127.0.0.1:{port}"


def page(site: str) -> str:
    """A page with files of that site."""
    return (
        f"<link rel=preconnect href={site}><link rel=stylesheet href='{site}/css2?family=f'>"
        f"<img src={site}/p><script defer src={site}/moved.js></script>"
    )


async def test_files_of_other_sites_are_taken_in_once(tmp_path: Path, cdn: tuple[Cdn, str]) -> None:
    """With all that sheets name; a later pack sends nothing, and has the same bytes."""
    server, site = cdn
    folder = write(tmp_path / "app", index__html=page(site))
    made = partial(pack, folder, app="cart", title="", runtime=RUNTIME)
    assert await take_in(folder, made) == []
    assert sorted(path for path, _ in server.asked) == [
        *("/css2?family=f", "/more.css", "/moved.js", "/p", "/s/f?v=1", "/x.js"),
    ]
    assert all("Chrome/" in agent for _, agent in server.asked)
    resource = made()
    assert (resource.warnings, resource.foreign) == ([], [])
    font, picture = (base64.b64encode(body).decode() for body in (FONT, b"png"))
    assert f'src: url("data:font/woff2;base64,{font}#x") format' in resource.html
    assert f'p {{ background: url("data:image/png;base64,{picture}") }}' in resource.html
    assert f'<img src="data:image/png;base64,{picture}">' in resource.html
    assert "ran('" in resource.html
    assert site not in resource.html.replace(f"<link rel=preconnect href={site}>", "")
    asked = len(server.asked)
    assert await take_in(folder, made) == []
    assert (made().html, len(server.asked)) == (resource.html, asked)
    named = json.loads((vendor_folder(folder) / LOCK).read_text("utf-8"))["files"]
    assert set(named) == {f"{site}{path}" for path in ("/css2?family=f", "/more.css", "/s/f?v=1", "/p", "/moved.js")}


async def test_other_bytes_than_those_of_the_lock_are_left_out(tmp_path: Path, cdn: tuple[Cdn, str]) -> None:
    """A changed or missing file is named with its URL and the remedy, and so is a lock that is none."""
    _, site = cdn
    folder = write(tmp_path / "app", index__html=f"<script src={site}/x.js></script><img src={site}/p>")
    await take_in(folder, partial(pack, folder, app="cart", title="", runtime=RUNTIME))
    [script] = vendor_folder(folder).glob("*.js")
    [picture] = vendor_folder(folder).glob("*.png")
    script.write_text("evil()")
    picture.unlink()
    made = pack(folder, app="cart", title="", runtime=RUNTIME)
    assert "evil()" not in made.html
    told = [warning.message for warning in made.warnings]
    assert [f"has other bytes than lock.json names for {site}/x.js" in one for one in told].count(True) == 1
    assert [f"{site}/p cannot be read" in one for one in told].count(True) == 1
    for broken in (
        "[]",
        '{"version": 2, "files": {}}',
        '{"version": 1, "files": {"x": {"file": "../x.js", "sha256": ""}}}',
    ):
        (vendor_folder(folder) / LOCK).write_text(broken)
        assert any(
            "is no lock of `pack --vendor`" in warning.message
            for warning in pack(folder, app="cart", title="", runtime=RUNTIME).warnings
        )


async def test_what_cannot_be_taken_in_is_named(tmp_path: Path, cdn: tuple[Cdn, str]) -> None:
    """A missing or large file, http elsewhere, a redirect to another network, and names that lead to private ones."""
    _, site = cdn
    names = [
        f"{site}/none.js",
        f"{site}/large.js",
        f"{site}/away.js",
        "http://cdn.example/x.js",
        "https://cdn.example/x.js",
    ]
    html = "".join(f"<script src={name}></script>" for name in names)
    folder = write(tmp_path / "app", index__html=html)
    made = partial(pack, folder, app="cart", title="", runtime=RUNTIME)
    lost = await take_in(folder, made, Connections(resolver=Loopback()))
    assert [one.partition(": ")[0] for one in lost] == names
    assert ["answers 404" in lost[0], "larger than 16 MiB" in lost[1], "is not https" in lost[3]] == [True] * 3
    assert "is at an address that its `network` does not allow" in lost[4]
    assert len(made().warnings) == 5


def test_the_command_says_what_it_left_out(tmp_path: Path) -> None:
    """And packs the rest."""
    folder = write(tmp_path / "app", index__html="<script src=http://cdn.invalid/x.js></script><p>rest")
    output = tmp_path / "out.html"
    done = CliRunner().invoke(main, ["pack", str(folder), "--vendor", "--output", str(output)])
    assert done.exit_code == 0
    assert "not taken in: http://cdn.invalid/x.js: it is not https" in done.stderr
    assert "<p>rest" in output.read_text("utf-8")


MODULES = """\
<script type=importmap>{{"imports": {{"lib": "{site}/lib/main.js"}}}}</script>
<script type=module>
import {{main, other}} from "lib"
import("{site}/lib/part.js").then(({{name}}) => console.log(main(), other, name))
</script>
"""


async def test_modules_of_other_sites_are_taken_in_with_what_they_import(tmp_path: Path, cdn: tuple[Cdn, str]) -> None:
    """By an import map, a static and a dynamic import; the module keeps its own address."""
    server, site = cdn
    folder = write(tmp_path / "app", index__html=MODULES.format(site=site))
    made = partial(pack, folder, app="cart", title="", runtime=RUNTIME)
    assert "or take it in once by `pack --vendor`" in str(made().warnings[0])
    assert await take_in(folder, made) == []
    assert sorted(path for path, _ in server.asked) == ["/lib/main.js", "/lib/other.js", "/lib/part.js"]
    resource = made()
    assert (resource.warnings, resource.foreign) == ([], [])
    assert f"'part ' + \"{site}/lib/part.js\"" in resource.html
    assert "'other'" in resource.html


@pytest.mark.parametrize(("fits", "ran"), [(True, True), (False, False)])
async def test_integrity_holds_for_what_was_taken_in(
    tmp_path: Path, cdn: tuple[Cdn, str], fits: bool, ran: bool
) -> None:
    """A script with other bytes than the page names does not run, as in a browser; packing goes on."""
    _, site = cdn
    digest = base64.b64encode(hashlib.sha384(b"ran('</script>')" if fits else b"other").digest()).decode()
    text = f"<script src={site}/x.js integrity='sha384-{digest}'></script><p>rest"
    folder = write(tmp_path / "app", index__html=text)
    made = partial(pack, folder, app="cart", title="", runtime=RUNTIME)
    assert await take_in(folder, made) == []
    resource = made()
    assert ("ran('" in resource.html, "<p>rest" in resource.html) == (ran, True)
    assert ["other bytes than its `integrity` names" in str(one) for one in resource.warnings] == (
        [] if fits else [True]
    )
