"""The cookie jar: a backend's cookies go back to it with requests of the same caller, and never reach the app."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from gateway.credentials import Token
from gateway.exchange.oauth_tokens import Ownership
from gateway.exchange.pages import page_of_browser
from gateway.model import LOCAL, Caller, Outbound, Request, Response, Secret
from gateway.policy import Cookies
from gateway.ports.cookies import COOKIES
from tests.exchange.house import JSON, PAGE, House, Shop, building

ITEMS = Request("GET", "/api/items")
SHARED = structs.replace(PAGE, principal=replace(LOCAL, shared=True))


def cookie_answer(*fields: str) -> Callable[[Outbound], Response]:
    """Return an answer that sets cookies."""
    return lambda request: Response(200, (*JSON, *(("set-cookie", field) for field in fields)), b"{}")


async def cookie(house: House, caller: Caller = PAGE, request: Request = ITEMS) -> str | None:
    """Return the cookie field that goes out with a request."""
    await house.exchange.run(request, caller)
    return dict(house.shop.sent[-1].headers).get("cookie")


async def test_what_is_set_comes_back(tmp_path: Path) -> None:
    """The app sees neither field, and its answers are private."""
    async with building(tmp_path, cookies=Cookies.JAR) as house:
        house.shop.answer = cookie_answer("session=s3cr3t-of-ann; HttpOnly")
        answer = await house.exchange.run(ITEMS, PAGE)
        assert "set-cookie" not in dict(answer.headers)
        assert answer.header("cache-control") == "private, no-cache"
        assert await cookie(house) == "session=s3cr3t-of-ann"


@pytest.mark.bound("cookies of a jar")
async def test_a_jar_is_full_some_time(tmp_path: Path) -> None:
    """A backend that sets ever more cookies cannot exhaust memory: the first ones are evicted."""
    async with building(tmp_path, cookies=Cookies.JAR) as house:
        for start in range(0, 300, 50):
            house.shop.answer = cookie_answer(*(f"c{number}=x" for number in range(start, start + 50)))
            await house.exchange.run(ITEMS, PAGE)
        sent = (await cookie(house) or "").split("; ")
        assert len(sent) <= COOKIES  # the bound of browsers for a site, and of aiohttp's jar
        assert {"c0=x", "c299=x"} & {*sent} == {"c299=x"}


async def test_without_a_jar_nothing_is_kept(tmp_path: Path) -> None:
    """This is the default of a policy."""
    async with building(tmp_path) as house:
        house.shop.answer = cookie_answer("session=1")
        await house.exchange.run(ITEMS, PAGE)
        assert await cookie(house) is None


@pytest.mark.parametrize(
    "other",
    [
        structs.replace(PAGE, principal=replace(LOCAL, subject="bob")),
        structs.replace(PAGE, principal=replace(LOCAL, client="another")),
    ],
)
async def test_principals_do_not_share(tmp_path: Path, other: Caller) -> None:
    """Ann's session is neither Bob's nor that of her other client."""
    async with building(tmp_path, cookies=Cookies.JAR) as house:
        house.shop.answer = cookie_answer("session=1")
        await house.exchange.run(ITEMS, PAGE)
        assert await cookie(house, other) is None
        assert await cookie(house, structs.replace(PAGE, view="v2")) == "session=1"


async def test_a_shared_principal_has_a_jar_for_each_view(tmp_path: Path) -> None:
    """And none without a known view."""
    async with building(tmp_path, cookies=Cookies.JAR) as house:
        house.shop.answer = cookie_answer("session=1")
        await house.exchange.run(ITEMS, SHARED)
        assert await cookie(house, SHARED) == "session=1"
        assert await cookie(house, structs.replace(SHARED, view="v2")) is None
        await house.exchange.run(ITEMS, structs.replace(SHARED, view=None))
        assert await cookie(house, structs.replace(SHARED, view=None)) is None


async def test_omit_leaves_the_jar_out(tmp_path: Path) -> None:
    """Neither sent nor stored, as in Fetch."""
    omitting = structs.replace(ITEMS, send_cookies=False)
    async with building(tmp_path, cookies=Cookies.JAR) as house:
        house.shop.answer = cookie_answer("session=1")
        await house.exchange.run(omitting, PAGE)
        assert await cookie(house) is None
        assert await cookie(house, request=omitting) is None
        assert await cookie(house) == "session=1"


async def test_the_apps_own_cookie_field_is_left_out(tmp_path: Path) -> None:
    """The jar's field replaces it; without a jar none is sent."""
    async with building(tmp_path, cookies=Cookies.JAR) as house:
        forging = structs.replace(ITEMS, headers=(("cookie", "session=forged"),))
        assert await cookie(house, request=forging) is None
        house.shop.answer = cookie_answer("session=1")
        await house.exchange.run(ITEMS, PAGE)
        assert await cookie(house, request=forging) == "session=1"


async def test_a_hidden_cookie_is_masked_where_it_is_echoed(tmp_path: Path) -> None:
    """An echoed HttpOnly cookie is masked; one that scripts may read is not."""
    async with building(tmp_path, cookies=Cookies.JAR) as house:
        house.shop.answer = cookie_answer("session=s3cr3t-of-ann; HttpOnly", "theme=dark-and-blue")
        await house.exchange.run(ITEMS, PAGE)
        house.shop.answer = lambda request: Response(200, JSON, str(request.headers).encode())
        echoed = (await house.exchange.run(ITEMS, PAGE)).body
        reported = house.outcome()["masked"]
    assert reported == ["cookie jar", "shop-service"]
    assert b"s3cr3t-of-ann" not in echoed
    assert b"dark-and-blue" in echoed


async def test_a_redirect_sets_cookies_too(tmp_path: Path) -> None:
    """As at a login; the next hop sends them."""

    def login(request: Outbound) -> Response:
        if request.url.endswith("/items"):
            return Response(302, (("location", "/v2/api/items/7"), ("set-cookie", "session=1; Path=/")))
        return Response(200, JSON, b"{}")

    async with building(tmp_path, cookies=Cookies.JAR) as house:
        house.shop.answer = login
        assert await cookie(house) == "session=1"
        assert len(house.shop.sent) == 2


async def test_an_account_that_is_changed_while_a_request_is_under_way(tmp_path: Path) -> None:
    """The old token is refused, and the request is repeated with the new account, without the old one's cookies."""

    async def connect(account: str) -> None:
        token = Token(Secret(f"token-of-{account}"), "Bearer", 9000.0, refresh=Secret("again"))
        await house.tokens.put("shop-service", "", token, account, 1000.0)

    class Refusing(Shop):
        async def send(self, request: Outbound) -> Response:
            answer = await super().send(request)
            if answer.status == 401:
                await connect("new")
            return answer

    shop = Refusing(cookie_answer("session=old"))
    ownership = Ownership(connect_url=lambda principal: "http://console.test/accounts")
    async with building(tmp_path, shop=shop, ownership=ownership, cookies=Cookies.JAR) as house:
        await connect("old")
        await house.exchange.run(ITEMS, PAGE)
        first = cookie_answer("session=new")
        shop.answer = lambda request: Response(401) if "token-of-old" in str(request.headers) else first(request)
        assert (await house.exchange.run(ITEMS, PAGE)).status == 200
        assert await cookie(house) == "session=new"
        shown = [(dict(sent.headers)["authorization"], dict(sent.headers).get("cookie")) for sent in shop.sent]
        old, new = "Bearer token-of-old", "Bearer token-of-new"
        assert shown == [(old, None), (old, "session=old"), (new, None), (new, "session=new")]


async def test_an_answer_with_a_jar_is_for_its_caller(tmp_path: Path) -> None:
    """Also without a credential; with neither, the backend's own cache-control holds."""
    policy = """
version: 1
backends:
  shop: {url: "http://shop.test"}
routes:
  - {path: /api/items, methods: [GET]}
"""
    for cookies, told in ((Cookies.JAR, "private, no-cache"), (Cookies.NONE, "max-age=60")):
        async with building(tmp_path, policy, cookies=cookies) as house:
            house.shop.answer = lambda request: Response(200, (("cache-control", "public, max-age=60"),))
            assert (await house.exchange.run(ITEMS, PAGE)).header("cache-control") == told


@pytest.mark.parametrize(
    ("method", "site", "mode", "destination", "sent"),
    [
        ("GET", "cross-site", "navigate", "document", "lax=2; none=3; plain=4; odd=5"),
        ("GET", "cross-site", "navigate", "iframe", "none=3"),
        ("POST", "cross-site", "navigate", "document", "none=3"),
        ("GET", "cross-site", "no-cors", "image", "none=3"),
        ("GET", "same-site", "navigate", "document", "strict=1; lax=2; none=3; plain=4; odd=5"),
        ("POST", "", "navigate", "document", "strict=1; lax=2; none=3; plain=4; odd=5"),
    ],
)
@pytest.mark.parametrize("has_pages", [True, False])
async def test_what_another_site_leads_to_carries_fewer_cookies(
    tmp_path: Path, method: str, site: str, mode: str, destination: str, sent: str, has_pages: bool
) -> None:
    """A link carries `Lax` and `None`, anything else `None` alone (RFC 6265bis, 5.8.3); no attribute means `Lax`."""
    fields = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": destination}
    headers = tuple((name, value) for name, value in fields.items() if value)
    page = page_of_browser(headers) if has_pages else None
    async with building(tmp_path, cookies=Cookies.JAR) as house:
        house.shop.answer = cookie_answer(
            *("strict=1; SameSite=Strict", "lax=2; SameSite=lax", "none=3; SameSite=None"),
            "plain=4",
            "odd=5; SameSite=x",
        )
        await house.exchange.run(ITEMS, PAGE)
        request = structs.replace(ITEMS, method=method, headers=headers, page=page, body=b"{}" * (method == "POST"))
        assert {*(await cookie(house, request=request) or "").split("; ")} == {*sent.split("; ")}


async def test_without_the_jar_nothing_is_sent(tmp_path: Path) -> None:
    """A request without its session could do something else; routes without a jar go on."""
    async with building(tmp_path, cookies=Cookies.JAR, jars_in_database=True) as house:
        house.shop.answer = cookie_answer("session=1")
        await house.exchange.run(ITEMS, PAGE)
        assert await cookie(house) == "session=1"
        lose_jars(tmp_path)
        refused = await house.exchange.run(ITEMS, PAGE)
        assert (refused.status, house.outcome()["reason"]) == (503, "state-unavailable")
        assert len(house.shop.sent) == 2
        assert (await house.exchange.run(structs.replace(ITEMS, send_cookies=False), PAGE)).status == 200


async def test_an_answer_whose_cookies_would_be_lost_is_refused(tmp_path: Path) -> None:
    """The page must not believe that it is logged in, or out, nor that nothing was sent.

    An answer that sets nothing is passed on.
    """

    def losing(*fields: str) -> Callable[[Outbound], Response]:
        def answer(request: Outbound) -> Response:
            lose_jars(tmp_path)
            return cookie_answer(*fields)(request)

        return answer

    async with building(tmp_path, cookies=Cookies.JAR, jars_in_database=True) as house:
        house.shop.answer = losing("session=; Max-Age=0")
        refused = await house.exchange.run(ITEMS, PAGE)
        assert (refused.status, house.outcome()["reason"]) == (503, "connection-lost")
        assert b"the backend has answered, but what it set would be lost" in refused.body
    (tmp_path / "other").mkdir()
    async with building(tmp_path / "other", cookies=Cookies.JAR, jars_in_database=True) as house:
        house.shop.answer = losing()
        assert (await house.exchange.run(ITEMS, PAGE)).status == 200


def lose_jars(folder: Path) -> None:
    """Take the table of the jars out of the database."""
    with closing(sqlite3.connect(folder / "gateway.db")) as database:
        database.execute("DROP TABLE IF EXISTS cookie_jars")
        database.commit()
