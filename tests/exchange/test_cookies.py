"""The cookie jar: a backend's cookies go back to it with requests of the same caller, and never reach the app."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from gateway.credentials import Token
from gateway.exchange.cookies import COOKIES, CookieJars, JarKey
from gateway.exchange.oauth_tokens import Ownership
from gateway.exchange.pages import page_of_browser
from gateway.model import LOCAL, Caller, Outbound, Request, Response, Secret
from gateway.policy import Cookies
from tests.exchange.house import JSON, PAGE, House, Shop, building

ITEMS = Request("GET", "/api/items")
SHARED = structs.replace(PAGE, principal=replace(LOCAL, shared=True))
KEY = JarKey("ann", "cart", "https://shop.test", "", None)
URL = "https://shop.test/v2/api/items"


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


@pytest.mark.parametrize(
    ("field", "url", "sent"),
    [
        ("a=1", URL, "a=1"),
        ("a=1; Path=/v2", "https://shop.test/v2/other", "a=1"),
        ("a=1; Path=/v2", "https://shop.test/v22", None),
        ("a=1", "https://shop.test/v2/else", None),
        ("a=1; Max-Age=0", URL, None),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", URL, None),
        ("a=1; expires=Thu, 01-Jan-70 00:00:00 GMT; Path=/", URL, None),
        ("a=1; Max-Age=3600", URL, "a=1"),
        ("a=1; Expires=Fri, 31 Dec 9999 23:59:59 GMT", URL, "a=1"),
        ("a=1; Secure", URL, "a=1"),
        ("a=1; Secure", URL.replace("https", "http"), None),
        ("a=1; Domain=shop.test", URL, None),
        ("a=1; domain = .test", URL, None),
        ('a="x y\\"z"', URL, 'a="x y\\"z"'),
        ("a=ab==/+", URL, "a=ab==/+"),
        ("a=ü", URL, None),
        ("a=" + "x" * 5000, URL, None),
        ("a=1\r\nx: y", URL, None),
        ("=1", URL, None),
        ("", URL, None),
    ],
)
async def test_as_rfc_6265_says(field: str, url: str, sent: str | None) -> None:
    """Path, Expires, Max-Age and Secure; host-only; values byte for byte."""
    jars = CookieJars()
    jars.keep(KEY, URL, (("set-cookie", field),))
    assert dict(jars.cookies(KEY, url)).get("cookie") == sent


async def test_a_cookie_is_replaced_and_deleted() -> None:
    """By the next one of its name, path and host."""
    jars = CookieJars()
    for field in ("a=1", "b=2", "a=3", "b=; Max-Age=0"):
        jars.keep(KEY, URL, (("set-cookie", field),))
    assert jars.cookies(KEY, URL) == (("cookie", "a=3"),)


async def test_other_origins_and_credentials_have_other_jars() -> None:
    """A new account of a credential starts without the old one's cookies."""
    jars = CookieJars()
    jars.keep(KEY, URL, (("set-cookie", "a=1"),))
    for other in (
        replace(KEY, origin="http://shop.test"),
        replace(KEY, credential="shop\n2"),
        replace(KEY, app="notes"),
        replace(KEY, view="v1"),
    ):
        assert jars.cookies(other, URL) == ()


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


async def test_a_jar_is_emptied() -> None:
    """At a logout, or when a credential is revoked."""
    jars = CookieJars()
    other = replace(KEY, credential="shop\n1")
    for emptying, left in (("", (other,)), (None, ())):
        for key in (KEY, other):
            jars.keep(key, URL, (("set-cookie", "a=1"),))
        jars.empty("ann", emptying)
        assert tuple(key for key in (KEY, other) if jars.cookies(key, URL)) == left


async def test_the_number_of_jars_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used jar is evicted."""
    monkeypatch.setattr("gateway.exchange.cookies.JARS", 2)
    jars = CookieJars()
    ann, bob, eve = (replace(KEY, principal=name) for name in ("ann", "bob", "eve"))
    for key in (ann, bob):
        jars.keep(key, URL, (("set-cookie", "a=1"),))
    jars.cookies(ann, URL)
    jars.keep(eve, URL, (("set-cookie", "a=1"),))
    assert [bool(jars.cookies(key, URL)) for key in (ann, bob, eve)] == [True, False, True]


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


@pytest.mark.bound("cookie jars")
async def test_nobody_empties_the_jars_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jars of one principal are bounded; in a full table, the principal with most loses one to a newcomer."""
    monkeypatch.setattr("gateway.exchange.cookies.EACH", 3)
    monkeypatch.setattr("gateway.exchange.cookies.JARS", 4)
    jars = CookieJars()
    ann = replace(KEY, principal="ann")
    jars.keep(ann, URL, (("set-cookie", "a=1"),))
    churned = [replace(KEY, principal="shared", view=f"view {number}") for number in range(20)]
    for key in churned:
        jars.keep(key, URL, (("set-cookie", "a=1"),))
    assert [bool(jars.cookies(key, URL)) for key in churned] == [*[False] * 17, True, True, True]
    jars.keep(replace(KEY, principal="bob"), URL, (("set-cookie", "a=1"),))
    assert bool(jars.cookies(ann, URL))
    assert sum(bool(jars.cookies(key, URL)) for key in churned) == 2


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
