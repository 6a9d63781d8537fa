"""What an app whose pages a backend renders adds to its requests, and what its scripts see of the cookies."""

import json

import pytest

from gateway.exchange.pages import (
    FIELD,
    after_redirect,
    browser_cookies,
    page_answer,
    page_fields,
    page_of_browser,
    page_url,
    with_meant_method,
    with_page,
)
from gateway.model import PageContext, Request

URL = "https://shop.example/cart/list"


def described(**given: object) -> Request:
    """A request with the shell's description of its page."""
    return with_page(
        Request("POST", "/cart", headers=((FIELD, json.dumps(given)), ("accept", "*/*"))), shares_cookies=True
    )


def test_the_description_is_read_and_never_sent_on() -> None:
    """A followed redirect does not store the page's cookies once more."""
    request = described(path="/a?b", mode="navigate", dest="document", user=True, cookies=["a=1"])
    assert request.headers == (("accept", "*/*"),)
    assert request.page == PageContext("/a?b", "navigate", "document", user=True, cookies=("a=1",))
    assert after_redirect(request).page == PageContext("/a?b", "navigate", "document", user=True)


def test_a_packed_app_describes_no_cookies() -> None:
    """Its scripts never write into the jar, nor read what is in it."""
    given = json.dumps({"path": "/a", "cookies": ["session=mallory"]})
    request = with_page(Request("GET", "/", headers=((FIELD, given),)), shares_cookies=False)
    assert request.page == PageContext("/a", shares_cookies=False)
    assert request.headers == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "1e999", "[" * 10_000, '{"path": "evil", "cookies": [1, null]}'),
        *('{"path": "//evil.example", "mode": "x", "dest": 1}', '{"path": 7, "cookies": "a=1"}'),
    ],
)
def test_a_strange_description_changes_nothing(text: str) -> None:
    """No value leads to another origin, or to another header."""
    request = with_page(Request("GET", "/", headers=((FIELD, text),)), shares_cookies=True)
    assert request.page is not None
    assert request.page.cookies == ()
    fields = dict(page_fields(request.page, "GET", "https://shop.example"))
    assert fields.get("referer", "https://shop.example/").startswith("https://shop.example/")
    assert fields["sec-fetch-mode"] == "cors"


def test_the_fields_are_those_of_the_backends_own_site() -> None:
    """`Origin` for changes, `Referer` without its fragment and in ASCII, Fetch Metadata as browsers write it."""
    context = PageContext("/é\r\nx: y?q#f", "navigate", "document", user=True)
    assert page_fields(context, "POST", "https://shop.example") == (
        ("origin", "https://shop.example"),
        ("referer", "https://shop.example/%C3%A9%0D%0Ax:%20y?q"),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
        ("upgrade-insecure-requests", "1"),
        ("sec-fetch-user", "?1"),
    )
    long = PageContext(f"/{'a' * 3000}")
    assert ("referer", "https://shop.example/") in page_fields(long, "GET", "https://shop.example")
    assert page_fields(PageContext(mode="navigate", destination="document"), "GET", "https://shop.example")[:1] == (
        ("sec-fetch-site", "none"),
    )
    site = (("Referer", "https://shop.gateway.example/a?b"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "x"))
    assert page_of_browser(site) == PageContext("/a?b", "navigate", "")


def test_the_answer_tells_the_shell_alone() -> None:
    """The cookies of the page's own URL, and the backend's content security policy."""
    headers = (("Content-Security-Policy", "a"), ("content-security-policy", "b"))
    assert page_answer("a=1", headers) == (("webmcp-gateway-csp", "a, b"), ("webmcp-gateway-cookies", "a=1"))
    assert page_answer(None, ()) == ()
    assert page_url(PageContext("/here?x#y"), URL) == "https://shop.example/here?x"
    assert page_url(PageContext("/here", "navigate"), URL) == URL


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_of_another_site_is_told_to_the_backend_as_one(site: str) -> None:
    """Its referrer is not taken for a page of the app."""
    given = (("Referer", "https://evil.example/"), ("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", "navigate"))
    fields = dict(page_fields(page_of_browser(given), "GET", "https://shop.example"))
    assert fields["sec-fetch-site"] == site
    assert "referer" not in fields


def test_a_referrer_of_another_host_is_no_page_of_the_app() -> None:
    """Also of a browser that does not tell the site."""
    given = (("Host", "shop.example"), ("Referer", "https://evil.example/a"))
    assert page_of_browser(given).path == ""
    assert page_of_browser((("Host", "shop.example"), ("Referer", "https://shop.example/a"))).path == "/a"


@pytest.mark.parametrize("referrer", ["http://[", "http://[::1", "https://a\u2100b/", "//]"])
def test_a_referrer_that_is_not_a_url_is_no_page(referrer: str) -> None:
    """The request is sent as one without a referrer."""
    assert page_of_browser((("Host", "shop.example"), ("Referer", referrer))) == page_of_browser(())


FORM = "application/x-www-form-urlencoded"
PART = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'


@pytest.mark.parametrize(
    ("kind", "body", "method", "rest"),
    [
        (FORM, b"a=1&_method=patch&b=2", "PATCH", b"a=1&b=2"),
        (f"{FORM}; charset=utf-8", b"_method=DELETE", "DELETE", b""),
        (FORM, b"_method=get&a=1", "POST", b"_method=get&a=1"),
        (FORM, b"_method=put&_method=delete", "POST", b"_method=put&_method=delete"),
        (FORM, b"x_method=put", "POST", b"x_method=put"),
        ("application/json", b'{"_method":"put"}', "POST", b'{"_method":"put"}'),
        (
            "multipart/form-data; boundary=b",
            PART % (b"_method", b"put") + PART % (b"a", b"_method=put") + b"--b--\r\n",
            "PUT",
            PART % (b"a", b"_method=put") + b"--b--\r\n",
        ),
    ],
)
def test_the_method_of_a_form_is_the_one_that_it_means(kind: str, body: bytes, method: str, rest: bytes) -> None:
    """At the app's own site as in a view: the policy decides on the method that is sent."""
    request = with_meant_method(Request("POST", "/note", headers=(("content-type", kind),), body=body))
    assert (request.method, request.body) == (method, rest)


def test_scripts_at_the_apps_site_read_the_cookies_that_are_theirs() -> None:
    """They are given once, and taken back; what the browser sends is not taken for the backend's."""
    first = browser_cookies((), "csrf=1; a.b=2; webmcp-gateway-session-80=x", secure=False)
    attributes = "; Path=/; SameSite=Strict"
    names = f"webmcp-gateway-shown=a%2Eb.csrf{attributes}; HttpOnly"
    assert [value for _, value in first] == [f"csrf=1{attributes}", f"a.b=2{attributes}", names]
    sent = (("cookie", "csrf=1; a.b=2; other=3; webmcp-gateway-shown=a%2Eb.csrf"),)
    assert browser_cookies(sent, "csrf=1; a.b=2", secure=False) == ()
    later = [value for _, value in browser_cookies(sent, "csrf=new", secure=True)]
    attributes += "; Secure"
    assert later == [
        f"csrf=new{attributes}",
        f"a.b={attributes}; Max-Age=0",
        f"webmcp-gateway-shown=csrf{attributes}; HttpOnly",
    ]
    assert len(browser_cookies((), "; ".join(f"c{n}{'x' * 100}=1" for n in range(100)), secure=False)) < 40
