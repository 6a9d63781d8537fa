"""Redirects of unsafe methods, as the route allows them."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.errors import Reason
from gateway.exchange.redirect import HOPS
from gateway.model import BodyType, Outbound, Redirect, Request, Response
from gateway.policy import Cookies, Redirects, parse_policy
from tests.exchange.house import JSON, MODEL, PAGE, House, building, reason, with_obligations

POLICY = """
version: 1
backends:
  shop: {url: "http://shop.test/v2", credential: shop-service}
routes:
  - {path: "/api/carts/{item}", methods: [GET, POST, DELETE]}
  - {path: "/api/orders/{item}", methods: [GET, POST]}
  - {path: "/api/asked/{item}", methods: [POST], confirm: {when: model, message: "Sure?"}}
"""
ADD = Request("POST", "/api/carts/7", (("content-type", "application/json"),), b'{"n":1}', BodyType.JSON)


def redirect_once(status: int, location: str) -> Any:
    """The first URL redirects, every other one answers."""

    def answer(request: Outbound) -> Response:
        if request.url.endswith("/7"):
            return Response(status, (("location", location), ("set-cookie", "hop=1; Path=/")))
        return Response(200, JSON, b"{}")

    return answer


async def follow_redirect(
    house: House, status: int, location: str, request: Request = ADD
) -> tuple[Response, list[Outbound]]:
    """Return the app's answer, and the requests that the shop received."""
    house.shop.answer = redirect_once(status, location)
    return await house.exchange.run(request, PAGE), house.shop.sent


@pytest.mark.parametrize("status", [307, 308])
async def test_same_route_repeats_method_and_body(tmp_path: Path, status: int) -> None:
    """Byte for byte, with the credential and the cookies of the new place."""
    async with building(tmp_path, POLICY, redirects=Redirects.SAME_ROUTE, cookies=Cookies.JAR) as house:
        answer, (_, second) = await follow_redirect(house, status, "/v2/api/carts/8")
        assert (answer.status, answer.redirected, answer.url) == (200, True, "/api/carts/8")
        assert (second.method, second.body, second.url) == ("POST", b'{"n":1}', "http://shop.test/v2/api/carts/8")
        headers = dict(second.headers)
        assert headers["content-type"] == "application/json"
        assert headers["authorization"] == "Bearer token-number-1"
        assert headers["cookie"] == "hop=1"


@pytest.mark.parametrize(
    ("redirects", "status", "location"),
    [
        (Redirects.SAFE, 307, "/v2/api/carts/8"),
        (Redirects.SAFE, 308, "/v2/api/carts/8"),
        (Redirects.NONE, 307, "/v2/api/carts/8"),
        (Redirects.NONE, 303, "/v2/api/carts/8"),
        (Redirects.SAME_ROUTE, 307, "/v2/api/orders/8"),
        (Redirects.SAME_ROUTE, 307, "/elsewhere"),
        (Redirects.SAME_ROUTE, 307, "https://evil.test/v2/api/carts/8"),
    ],
)
async def test_what_is_not_followed(tmp_path: Path, redirects: Redirects, status: int, location: str) -> None:
    """Without the route's permission, out of the route, or out of the policy."""
    async with building(tmp_path, POLICY, redirects=redirects) as house:
        answer, requests = await follow_redirect(house, status, location)
        assert reason(answer) == Reason.REDIRECT_DENIED
        assert len(requests) == 1


@pytest.mark.parametrize(("method", "status", "kept"), [
    ("GET", 301, True), ("GET", 302, True), ("GET", 303, True), ("GET", 307, True), ("HEAD", 302, True),
    ("HEAD", 303, True),
    ("OPTIONS", 302, True), ("OPTIONS", 307, True), ("OPTIONS", 303, False), ("POST", 302, False), ("POST", 303, False),
])  # fmt: skip
async def test_fields_of_a_body_go_with_the_method(tmp_path: Path, method: str, status: int, kept: bool) -> None:
    """They are dropped if the method becomes GET (Fetch, HTTP-redirect fetch, step 13), and kept otherwise."""
    about = (("content-language", "en"), ("content-location", "here"), ("content-type", "text/plain"))
    policy = POLICY.replace("POST, DELETE", "POST, DELETE, HEAD, OPTIONS")
    async with building(tmp_path, policy, redirects=Redirects.SAFE) as house:
        answer, (_, second) = await follow_redirect(
            house, status, "/v2/api/carts/8", Request(method, "/api/carts/7", about)
        )
        assert answer.status == 200
        assert {name for name, _ in second.headers if name.startswith("content-")} == (
            dict(about).keys() if kept else set()
        )


@pytest.mark.parametrize("status", [301, 302])
async def test_only_307_and_308_repeat_a_change(tmp_path: Path, status: int) -> None:
    """Older codes would also keep the method of a DELETE, but are not followed."""
    async with building(tmp_path, POLICY, redirects=Redirects.SAME_ROUTE) as house:
        answer, requests = await follow_redirect(house, status, "/v2/api/carts/8", Request("DELETE", "/api/carts/7"))
        assert reason(answer) == Reason.REDIRECT_DENIED
        assert len(requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_what_becomes_a_get_has_no_body(tmp_path: Path, status: int) -> None:
    """As in Fetch, also if unsafe methods could be repeated."""
    async with building(tmp_path, POLICY, redirects=Redirects.SAME_ROUTE) as house:
        answer, (_, second) = await follow_redirect(house, status, "/v2/api/orders/8")
        assert answer.status == 200
        assert (second.method, second.body) == ("GET", b"")
        assert "content-type" not in dict(second.headers)


async def test_no_redirects_are_followed_where_the_route_says_so(tmp_path: Path) -> None:
    """Not even of a GET; the app may still request the redirect itself."""
    async with building(tmp_path, POLICY, redirects=Redirects.NONE) as house:
        asking = Request("GET", "/api/carts/7")
        assert reason((await follow_redirect(house, 302, "/v2/api/carts/8", asking))[0]) == Reason.REDIRECT_DENIED
        manual, _ = await follow_redirect(house, 302, "/v2/api/carts/8", replace(asking, redirect=Redirect.MANUAL))
        assert (manual.status, manual.header("location")) == (302, "/api/carts/8")


async def test_an_approval_does_not_go_along(tmp_path: Path) -> None:
    """A person approved one place; the next one would need a separate approval."""
    async with building(tmp_path, POLICY, redirects=Redirects.SAME_ROUTE) as house:
        house.shop.answer = redirect_once(307, "/v2/api/asked/8")
        waiting = await house.exchange.run(replace(ADD, url="/api/asked/7"), MODEL)
        id = waiting.header("gateway-pending") or ""
        await house.approvals.answer(id, True, "ann")
        assert reason(await house.exchange.resume(id, MODEL, wait=0)) == Reason.REDIRECT_DENIED
        assert [request.url for request in house.shop.sent] == ["http://shop.test/v2/api/asked/7"]


async def test_each_hop_counts(tmp_path: Path) -> None:
    """A redirect takes from the rate of its target."""
    policy = with_obligations(
        parse_policy(POLICY.replace("POST, DELETE]}", 'POST, DELETE], rate: "2/minute per principal"}'), "p.yaml"),
        redirects=Redirects.SAME_ROUTE,
    )
    async with building(tmp_path, policy) as house:
        assert (await follow_redirect(house, 307, "/v2/api/carts/8"))[0].status == 200
        assert reason((await follow_redirect(house, 307, "/v2/api/carts/8"))[0]) == Reason.RATE_LIMITED


@pytest.mark.bound("followed redirects")
async def test_a_redirect_too_many_is_not_followed(tmp_path: Path) -> None:
    """A backend that redirects in a circle is abandoned after a few hops."""
    async with building(tmp_path, parse_policy(POLICY, "p.yaml")) as house:
        house.shop.answer = redirect_once(302, "http://shop.test/v2/api/carts/7")
        answer = await house.exchange.run(Request("GET", "/api/carts/7"), PAGE)
        assert reason(answer) == Reason.REDIRECT_BROKEN
        assert len(house.shop.sent) == HOPS + 1


async def test_https_never_becomes_http(tmp_path: Path) -> None:
    """Wherever the route allows redirects to lead."""
    policy = """
version: 1
backends:
  shop: {url: "https://shop.test/v2"}
  plain: {url: "http://shop.test/v2"}
routes:
  - {path: "/api/carts/{item}", methods: [GET], backend: shop}
  - {path: "/api/orders/{item}", methods: [GET], backend: plain}
"""
    async with building(tmp_path, policy) as house:
        house.shop.answer = redirect_once(302, "http://shop.test/v2/api/orders/8")
        answer = await house.exchange.run(Request("GET", "/api/carts/7"), PAGE)
        assert reason(answer) == Reason.REDIRECT_DENIED
        assert len(house.shop.sent) == 1


async def test_a_repeated_change_keeps_its_key(tmp_path: Path) -> None:
    """The app's key, or the gateway's own, is kept; a GET carries none."""
    keyed = replace(ADD, headers=(*ADD.headers, ("idempotency-key", "order-7")))
    async with building(tmp_path, POLICY, redirects=Redirects.SAME_ROUTE, idempotent=True) as house:
        for request in (keyed, ADD):
            house.shop.sent.clear()
            answer, requests = await follow_redirect(house, 307, "/v2/api/carts/8", request)
            assert answer.status == 200
            first, second = (dict(one.headers)["idempotency-key"] for one in requests)
            assert first == second
        house.shop.sent.clear()
        _, (_, read) = await follow_redirect(house, 303, "/v2/api/carts/8")
        assert "idempotency-key" not in dict(read.headers)


async def test_a_site_follows_a_repeated_change_itself_within_its_route(tmp_path: Path) -> None:
    """Its browser sends it once more, unless it could not with the same key, or the policy would not allow it here."""
    leading = replace(ADD, leads=True)
    async with building(tmp_path, POLICY, redirects=Redirects.SAME_ROUTE) as house:
        answer, requests = await follow_redirect(house, 307, "/v2/api/carts/8", leading)
        assert (answer.status, answer.header("location"), len(requests)) == (307, "/api/carts/8", 1)
        house.shop.sent.clear()
        keyed = replace(leading, headers=(*ADD.headers, ("idempotency-key", "order-8")))
        answer, requests = await follow_redirect(house, 307, "/v2/api/carts/8", keyed)
        assert (answer.status, len(requests)) == (200, 2)
        house.shop.sent.clear()
        answer, requests = await follow_redirect(house, 307, "/v2/api/orders/8", leading)
        assert (reason(answer), len(requests)) == (Reason.REDIRECT_DENIED, 1)
    async with building(tmp_path, POLICY, redirects=Redirects.SAFE) as house:
        answer, requests = await follow_redirect(house, 307, "/v2/api/carts/8", leading)
        assert (reason(answer), len(requests)) == (Reason.REDIRECT_DENIED, 1)
