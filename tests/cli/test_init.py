"""`init`: a first configuration that works as written."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import time
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from gateway.apps.survey import survey
from gateway.cli import main
from gateway.config import BackendApp, load_config
from gateway.errors import DocumentError
from gateway.policy import load_policy
from tests.world import serving

PAGE = """\
<script type="module">
  const cart = await (await fetch('/api/cart?full=1')).json()
  await fetch(`/api/cart/${encodeURIComponent(item.id)}`, {method: 'DELETE'})
  await fetch("/api/cart/" + other)
  await fetch('/api/people/' + person)
  await fetch(`/api/orders/${year}/items/${id}`)
  await fetch(`/api/half-${id}`)
  await fetch('https://elsewhere.example/api')
  document.modelContext.registerTool({
    name: 'get_cart',
    description: 'What is in the cart', execute: show
  })
</script>
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a web app in shop/web, which is the current one."""
    web = tmp_path / "shop" / "web"
    web.mkdir(parents=True)
    (web / "index.html").write_text(PAGE)
    (web / "node_modules").mkdir()
    (web / "node_modules" / "other.js").write_text("fetch('/api/not-ours')")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, arguments)


def test_the_written_files_pass_their_own_checks(folder: Path) -> None:
    """`init` writes a valid configuration whose tests pass."""
    result = run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    assert result.exit_code == 0, result.output
    config = load_config(Path("gateway.yaml"), {})
    assert config.apps["shop"].source == folder / "shop" / "web"
    assert run("policy", "check").exit_code == 0
    assert run("policy", "test").exit_code == 0


def test_the_policy_reads_what_the_files_fetch_and_nothing_else(folder: Path) -> None:
    """Paths are those of fetch('/…'), placeholders become parameters; only GET is allowed."""
    run("init", "shop/web", "--backend", "http://127.0.0.1:3000")

    def outcome(method: str, url: str) -> int:
        return run("policy", "explain", method, url).exit_code

    reads = ["/api/cart", "/api/cart/7", "/api/people/7", "/api/orders/2025/items/1"]
    assert [outcome("GET", url) for url in reads] == [0, 0, 0, 0]
    others = ["/api/orders", "/api/not-ours", "/api/half-1", "/"]
    assert [outcome("GET", url) for url in others] == [1, 1, 1, 1]
    assert [outcome("DELETE", url) for url in reads] == [1, 1, 1, 1]


def test_the_same_path_with_another_name_for_its_hole_is_written_once(folder: Path) -> None:
    """`/api/cart/{id}` and `/api/cart/{item}` are one route."""
    run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    assert Path("policies/shop.yaml").read_text().count('{path: "/api/cart/{') == 1


def test_the_tools_that_the_files_register_are_listed(folder: Path) -> None:
    """A model sees the page's tools at once; their requests are limited by the routes."""
    result = run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    assert list(load_policy(Path("policies/shop.yaml")).tools) == ["get_cart"]
    assert "Tools of the page that a model may call: get_cart." in result.output


def test_what_names_no_path_opens_nothing(folder: Path) -> None:
    """The starter policy says so, and shows the format of a route."""
    (folder / "shop" / "web" / "index.html").write_text("<h1>hello</h1>")
    result = run("init", "shop/web", "--backend", "https://api.example.com/v2")
    assert "the policy opens nothing yet" in result.output
    assert "routes: []" in Path("policies/shop.yaml").read_text()
    assert run("policy", "explain", "GET", "/api/anything/below").exit_code == 1
    assert run("policy", "test").exit_code == 0


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("request.open('GET', '/api/old')", "/api/old"),
        ('new XMLHttpRequest().open( "get" , "/api/old/" + id, true)', "/api/old/{item}"),
        ("axios.get(`/api/things/${thing.id}`)", "/api/things/{id}"),
        ("$.get('/api/things')", "/api/things"),
        ("$.getJSON('/api/things?x=1', show)", "/api/things"),
        ("this.http.get<Thing[]>('/api/things')", "/api/things"),
        ("<form method=get action=/api/search><input name=q></form>", "/api/search"),
        ('<form\n  action="/api/search?all=1"\n  class="a > b">', "/api/search"),
        ("<img alt='' src=/api/logo.png?v=2>", "/api/logo.png"),
        ("<img src='//elsewhere.example/logo.png'>", None),
        ("<img src='/index.html'>", None),
        ("<script src='/api/widget.js' defer></script>", "/api/widget.js"),
        ("<link rel=stylesheet href='/api/theme.css?v=1'>", "/api/theme.css"),
        ("<link rel=canonical href='/api/things'>", None),
        ("<video poster='/api/still.png'></video>", "/api/still.png"),
        ("<source media='(width > 1px)' srcset='/api/wide.png 2x, index.html'>", "/api/wide.png"),
        ("<form method=post action=/api/book>", None),
        ("<form action='https://elsewhere.example/api'>", None),
        ("request.open('POST', '/api/old')", None),
        ("router.get('/api/things', handler)", None),
        ("cache.get('/api/things')", None),
        ("axios.post('/api/things')", None),
        ("fetch('/api/things', {method: 'post', body})", None),
        ("fetch(`/api/things/${e}/like`,{method:`POST`})", None),
        ("fetch('/api/things/' + id, {headers: {accept: 'text/plain'}, \"method\": \"DELETE\"})", None),
        ("fetch('/api/things', {method: 'get', headers: {x: 'a'}})", "/api/things"),
        ("fetch('/api/things', {signal}); fetch(other, {method: 'POST'})", "/api/things"),
        ("<formula action=/api/search>", None),
        ("$http({ method: 'GET', url: '/api/settings' })", "/api/settings"),
        ("$.ajax({url: '/api/things', dataType: 'json'})", "/api/things"),
        ("axios({url: '/api/things', method: 'post'})", None),
        ("$.ajax({type: 'POST', url: '/api/things'})", None),
        ("axios({url: '/api/things', method})", None),
        (" * fetch('/api/example')\n  // axios.get('/api/other')\n/* $http({url: '/api/third'}) */", None),
    ],
)
def test_other_ways_to_ask_are_read_too(folder: Path, written: str, path: str | None) -> None:
    """Reads are found; forms that change something, a server's own routes and maps are not."""
    (folder / "shop" / "web" / "index.html").write_text(written)
    assert run("init", "shop/web", "--backend", "http://127.0.0.1:3000").exit_code == 0
    assert survey(Path("shop/web")).paths == ((path,) if path else ())
    assert run("policy", "test").exit_code == 0


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("fetch('api/items')", "/api/items"),
        ("fetch('./api/items?all')", "/api/items"),
        ("fetch('../items')", "/items"),
        ("const API = '/api/v1';\nfetch(`${API}/items/${id}`)", "/api/v1/items/{id}"),
        ('const API = "/api/v1"\nfetch(API + "/items")', "/api/v1/items"),
        ("const api = axios.create({timeout: 5, baseURL: '/api'}); api.get('/items')", "/api/items"),
        ("axios.defaults.baseURL = '/api'; axios.get('items')", "/api/items"),
        ("fetch('http://127.0.0.1:3000/v2/items')", "/v2/items"),
        ("fetch('/api/items/')", "/api/items/"),
        ("fetch('data.json')", None),
        ("fetch(other + '/items')", None),
        ("fetch('mailto:me@example.com')", None),
    ],
)
def test_paths_behind_bases_are_found(folder: Path, written: str, path: str | None) -> None:
    """Relative ones, those behind constants and clients, and the backend's own; not files of the app."""
    (folder / "shop" / "web" / "data.json").write_text("{}")
    (folder / "shop" / "web" / "index.html").write_text(f"<script>\n{written}\n</script>")
    assert run("init", "shop/web", "--backend", "http://127.0.0.1:3000").exit_code == 0
    routes = load_policy(Path("policies/shop.yaml")).routes.all
    assert [route.template.text for route in routes] == ([path] if path else [])


def test_urls_of_the_backend_mean_the_backend(folder: Path) -> None:
    """Its origin is written, so that they are decided by its routes; other sites stay closed."""
    (folder / "shop" / "web" / "index.html").write_text(
        "<script>fetch('http://127.0.0.1:3000/v2/items'); fetch('https://elsewhere.example/x')</script>"
    )
    run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    assert run("policy", "explain", "GET", "http://127.0.0.1:3000/v2/items").exit_code == 0
    assert run("policy", "explain", "GET", "https://elsewhere.example/x").exit_code == 1


def test_relative_paths_count_from_where_the_app_lives(folder: Path) -> None:
    """As a browser resolves them."""
    (folder / "shop" / "web" / "a.js").write_text("fetch('api/items')")
    (folder / "shop" / "web" / "index.html").write_text("<script src=/my-app/a.js></script>")
    run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    routes = load_policy(Path("policies/shop.yaml")).routes.all
    assert [route.template.text for route in routes] == ["/my-app/api/items"]


def test_sockets_and_logins_are_comments_that_can_be_opened(folder: Path) -> None:
    """Without the `#` the policy is valid, and carries them."""
    (folder / "shop" / "web" / "index.html").write_text(
        "<script>const socket = new WebSocket(`ws://${location.host}/live`); io('/', {path: '/socket.io'})\n"
        "fetch('/api/me', {headers: {Authorization: token}})</script><input type=password>"
    )
    result = run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    assert "authorization: pass\n" in result.output
    file = Path("policies/shop.yaml")
    closed = load_policy(file)
    assert [route.template.text for route in closed.routes.all] == ["/api/me"]
    file.write_text(re.sub(r"# (?=- \{path: /(?:live|socket)|authorization: |cookies: )", "", file.read_text()))
    opened = load_policy(file)
    sockets = [route.template.text for route in opened.routes.all if route.decision.obligations.socket is not None]
    assert sockets == ["/live", "/socket.io/"]
    assert (opened.backends["app"].cookies, str(opened.backends["app"].authorization)) == ("jar", "pass")


def test_an_app_without_requests_needs_no_backend(folder: Path) -> None:
    """Nor does one that seems to request something, as viewers of files do: the message says that it is not open."""
    assert "name /api/cart and others: without a backend none of them is open" in run("init", "shop/web").output
    assert not load_policy(Path("policies/shop.yaml")).routes.all
    (folder / "shop" / "web" / "index.html").write_text("<h1>2048</h1>")
    assert "without a backend" not in run("init", "shop/web", "--force").output
    assert not load_policy(Path("policies/shop.yaml")).backends
    assert run("policy", "test").exit_code == 0


def test_report_mode_is_written_where_it_is_asked_for(folder: Path) -> None:
    """Until a day that it may last to; the last lines are the way to enforcement."""
    result = run("init", "shop/web", "--backend", "http://127.0.0.1:3000", "--report")
    mode = load_policy(Path("policies/shop.yaml")).mode
    assert mode is not None
    assert mode.active(time.time())
    assert [line.split()[:3] for line in result.output.splitlines()[-3:]] == [
        ["webmcp-gateway", "serve", "and"],
        ["webmcp-gateway", "policy", "learn"],
        ["webmcp-gateway", "policy", "test"],
    ]


def test_the_build_of_a_project_is_taken(folder: Path) -> None:
    """If its own page names sources."""
    project = folder / "shop" / "web"
    (project / "index.html").write_text("<script type=module src=/src/main.tsx></script>")
    (project / "dist").mkdir()
    (project / "dist" / "index.html").write_text("<h1>built</h1>")
    assert run("init", "shop/web").exit_code == 0
    assert load_config(Path("gateway.yaml"), {}).apps["shop"].source == project / "dist"


def test_what_cannot_be_seen_is_said(folder: Path) -> None:
    """With the place of such a request."""
    (folder / "shop" / "web" / "index.html").write_text("<script>\nfetch(address)</script>")
    result = run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    assert "Not seen: requests whose URLs are computed when the page runs, such as at index.html:2." in result.output


def test_event_streams_are_passed_on_as_they_come(folder: Path) -> None:
    """The route streams also if another script fetches the same path, with another name for its parameter."""
    (folder / "shop" / "web" / "index.html").write_text(
        "new EventSource(`/api/rooms/${id}`, {withCredentials: true}); new  EventSource ('/api/events?all')\n"
        "fetch(`/api/rooms/${room}`); fetch('/api/notes')"
    )
    assert run("init", "shop/web", "--backend", "http://127.0.0.1:3000").exit_code == 0
    routes = yaml.safe_load(Path("policies/shop.yaml").read_text())["routes"]
    streamed = {"/api/events": True, "/api/notes": False, "/api/rooms/{room}": True}
    assert {route["path"]: route.get("stream", False) for route in routes} == streamed
    assert run("policy", "check").exit_code == 0


def test_the_tools_that_forms_declare_are_listed(folder: Path) -> None:
    """The form's method does not matter."""
    page = '<form toolname="book" tooldescription="Books a table." method=post></form><form toolname=find_it></form>'
    (folder / "shop" / "web" / "index.html").write_text(page)
    run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    assert list(load_policy(Path("policies/shop.yaml")).tools) == ["book", "find_it"]


@pytest.mark.parametrize(
    ("backend", "private"),
    [
        ("http://127.0.0.1:3000", True),
        ("http://localhost:3000", True),
        ("http://[::1]:3000", True),
        ("http://10.1.2.3", True),
        ("https://api.example.com", False),
        ("https://93.184.216.34", False),
    ],
)
def test_the_network_of_the_backend_fits_its_address(folder: Path, backend: str, private: bool) -> None:
    """A backend on this machine works without an edit of the policy."""
    run("init", "shop/web", "--backend", backend)
    network = load_policy(Path("policies/shop.yaml")).backends["app"].network
    assert (network.private, network.public) == (private, not private)


def test_nothing_is_overwritten_without_force(folder: Path) -> None:
    """An existing policy is worth more than a starter."""
    Path("gateway.yaml").write_text("mine")
    result = run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    assert result.exit_code == 2
    assert "gateway.yaml would be overwritten: move it, or use --force" in result.output
    assert Path("gateway.yaml").read_text() == "mine"
    assert not Path("policies").exists()
    assert run("init", "shop/web", "--backend", "http://127.0.0.1:3000", "--force").exit_code == 0
    again = run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    assert "policies/shop.yaml, gateway.yaml would be overwritten: move them, or use --force" in again.output


@pytest.mark.parametrize(
    "backend",
    ["127.0.0.1:3000", "ftp://x.example", "http://", "http://[::1", "http://127.0.0.1:99999", "http://me:pw@x.test"],
)
def test_a_backend_that_is_no_url_is_refused(folder: Path, backend: str) -> None:
    """The error names the option; nothing is written."""
    result = run("init", "shop/web", "--backend", backend)
    assert (result.exit_code, "--backend" in result.output, "yaml" in result.output) == (2, True, False)
    assert not Path("gateway.yaml").exists()
    assert not Path("policies").exists()


def test_the_folder_of_the_app_itself_is_no_place_for_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages could read files beside gateway.yaml, so nothing is written there."""
    monkeypatch.chdir(folder / "shop" / "web")
    result = run("init", ".", "--backend", "http://127.0.0.1:3000")
    assert (result.exit_code, "call this elsewhere" in result.output) == (2, True)
    assert not Path("gateway.yaml").exists()


@pytest.mark.parametrize(
    ("name", "app"),
    [("My Shop_2", "my-shop-2"), ("2048", "app"), ("ünïcode", "n-code"), ("a" * 40, "a" * 24), ("open", "app")],
)
def test_the_app_id_comes_from_the_folder(folder: Path, name: str, app: str) -> None:
    """Any folder name yields a valid id."""
    (folder / "shop" / "web").rename(folder / name)
    assert run("init", name, "--backend", "http://127.0.0.1:3000").exit_code == 0
    assert list(load_config(Path("gateway.yaml"), {}).apps) == [app]


def test_the_app_id_can_be_chosen(folder: Path) -> None:
    """An invalid id is refused before anything is written."""
    assert run("init", "shop/web", "--backend", "http://127.0.0.1:3000", "--app", "Shop").exit_code == 2
    assert not Path("gateway.yaml").exists()
    assert run("init", "shop/web", "--backend", "http://127.0.0.1:3000", "--app", "till").exit_code == 0
    assert list(load_config(Path("gateway.yaml"), {}).apps) == ["till"]


def test_a_folder_without_a_page_is_refused(folder: Path) -> None:
    """It could not be served; nothing is written."""
    (folder / "empty").mkdir()
    result = run("init", "empty", "--backend", "http://127.0.0.1:3000")
    assert result.exit_code == 2
    assert "index.html" in result.output
    assert not (folder / "gateway.yaml").exists()


def test_the_written_files_are_their_users_alone(folder: Path) -> None:
    """The umask has no effect: who can write a policy decides what is allowed, and nobody else needs to read it."""
    umask = os.umask(0)
    try:
        result = run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    finally:
        os.umask(umask)
    assert result.exit_code == 0, result.output
    written = [Path("gateway.yaml"), Path("policies"), *Path("policies").iterdir()]
    assert len(written) == 3
    assert [stat.S_IMODE(path.stat().st_mode) for path in written] == [0o600, 0o755, 0o600]


def test_what_the_page_names_elsewhere_and_where_it_lives_is_found(folder: Path) -> None:
    """The start is written, other sites are comments that can be used, and packing's warnings are listed."""
    web = folder / "built"
    (web / "assets").mkdir(parents=True)
    (web / "index.html").write_text(
        "<link rel=stylesheet href='https://fonts.googleapis.com/css2?family=Inter'><img src=//images.example/a.png>"
        "<script type=module src=/my-app/assets/m.js></script><script src=https://cdn.example/x.js></script>"
    )
    (web / "assets" / "m.js").write_text("fetch('/api/x'); fetch(`https://api.example/${path}`)")
    result = run("init", "built", "--backend", "http://127.0.0.1:3000", "--app", "shop")
    assert result.exit_code == 0, result.output
    assert "It begins at /my-app/ of its site" in result.output
    assert result.output.count("\n  left out: ") == 3
    assert load_config(Path("gateway.yaml"), {}).apps["shop"].start == "/my-app/"
    written = Path("policies/shop.yaml").read_text()
    policy = load_policy(Path("policies/shop.yaml"))
    assert [route.template.text for route in policy.routes.all] == ["/api/x"]
    assert not policy.external
    comment = written[written.index("# external:") :].partition("\n\n")[0]
    opened = yaml.safe_load("\n".join(line[2:] for line in comment.splitlines()))["external"]
    assert opened == {
        "styles": ["https://fonts.googleapis.com"],
        "images": ["https://images.example"],
        "scripts": [{"url": "https://cdn.example/x.js", "integrity": "sha384-…"}],
        "fonts": ["https://fonts.gstatic.com"],
        "connect": ["https://api.example"],
    }


@pytest.mark.parametrize(
    "written",
    ["createBrowserRouter(a, {basename: '/shop'})", '<Router basename={"/shop"}>', "createWebHistory('/shop')"],
)
def test_the_path_of_a_router_is_found(folder: Path, written: str) -> None:
    """Where the script says it."""
    (folder / "shop" / "web" / "router.js").write_text(written)
    run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    assert load_config(Path("gateway.yaml"), {}).apps["shop"].start == "/shop"


@pytest.mark.parametrize("start", ["dashboard", "//x.example/", "/a\\b", "/../x", "/a b", "https://x.example/", "/ä"])
def test_a_start_that_is_no_path_of_the_site_is_an_error(folder: Path, start: str) -> None:
    """With its place."""
    run("init", "shop/web", "--backend", "http://127.0.0.1:3000")
    file = Path("gateway.yaml")
    file.write_text(file.read_text().replace("    source:", f"    start: {start!r}\n    source:"))
    with pytest.raises(DocumentError, match=r"gateway\.yaml:7:\d+: start: "):
        load_config(file, {})


async def home(_: web.Request) -> web.Response:
    """A page of a server, with a form and a link."""
    text = (
        "<h1>Books</h1><link rel=stylesheet href=/static/a.css><script src=/static/js/a.js></script>"
        "<script src=http://[></script><a href=http://[>No URL</a>"
        "<form method=post action=/books/add></form><a href=/books/about>About</a>"
    )
    answer = web.Response(text=text, content_type="text/html")
    answer.set_cookie("sessionid", "7")
    return answer


def test_a_resource_of_angularjs_is_a_list_and_its_items(folder: Path) -> None:
    """Both may be read."""
    (folder / "shop" / "web" / "index.html").write_text("<script>$resource('email/:id', { id: '' })</script>")
    assert survey(Path("shop/web")).paths == ("/email", "/email/{id}")


async def test_the_pages_of_a_backend_are_an_app(folder: Path) -> None:
    """The first page, those to which it links, and the folders of its files may be read; its forms are comments."""
    app = web.Application()
    app.add_routes([web.get("/books/", home), web.get("/static/js/a.js", no_script)])
    async with serving(app) as port:
        url = f"http://127.0.0.1:{port}"
        result = await asyncio.to_thread(run, "init", f"{url}/books/", "--app", "books")
        refused = await asyncio.to_thread(run, "init", f"{url}/nothing", "--app", "other")
    assert result.exit_code == 0, result.output
    assert "It begins at /books/ of its site." in result.output
    config = load_config(Path("gateway.yaml"), {})
    assert config.apps["books"].source == BackendApp("app", "/books/")
    policy = load_policy(Path("policies/books.yaml"))
    paths = ["/books/", "/books/about", "/static/**", "/static/js/**"]
    assert sorted(route.template.text for route in policy.routes.all) == paths
    assert (policy.backends["app"].url, policy.backends["app"].cookies) == (url, "jar")
    assert "# - {path: /books/add, methods: [POST]}" in Path("policies/books.yaml").read_text()
    assert run("policy", "test").exit_code == 0
    assert (refused.exit_code, "answers 404" in refused.output) == (2, True)


async def to_login(_: web.Request) -> web.Response:
    """Lead to the login."""
    raise web.HTTPFound("/login/")


async def test_an_app_begins_where_its_url_says_and_not_at_its_login(folder: Path) -> None:
    """A view of somebody who is logged in would show the login otherwise; both may be read."""
    app = web.Application()
    app.add_routes([web.get("/desk/", to_login), web.get("/login/", home)])
    async with serving(app) as port:
        result = await asyncio.to_thread(run, "init", f"http://127.0.0.1:{port}/desk/", "--app", "desk")
    assert result.exit_code == 0, result.output
    assert load_config(Path("gateway.yaml"), {}).apps["desk"].source == BackendApp("app", "/desk/")
    paths = {route.template.text for route in load_policy(Path("policies/desk.yaml")).routes.all}
    assert {"/desk/", "/login/"} <= paths


async def no_script(_: web.Request) -> web.Response:
    """An empty script."""
    return web.Response(text="", content_type="text/javascript")


def test_a_url_has_no_other_backend(folder: Path) -> None:
    """Nor is there an app where nothing is."""
    assert run("init", "http://127.0.0.1:1/", "--backend", "http://127.0.0.1:2").exit_code == 2
    assert "there is no such folder or file" in run("init", "nothing").output
