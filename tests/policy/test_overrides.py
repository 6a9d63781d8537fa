"""A `_method` in a body is found wherever a server's parser would find it, also in a large body."""

import re
from collections.abc import Generator
from typing import TypeVar
from urllib.parse import unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.jsontext.sizes import AT_ONCE
from gateway.model import Headers
from gateway.policy import bodies
from gateway.policy.bodies import method_override

T = TypeVar("T")

FORM = (("content-type", "application/x-www-form-urlencoded"),)
MULTIPART = (("content-type", "multipart/form-data; boundary=x"),)
JSON = (("content-type", "application/json"),)

FIELD = re.compile(rb"\bname\s*=\s*(?:\"_method\"|'_method'|_method\b)", re.IGNORECASE)
"""The field as lenient parsers accept it."""

WORDS = [b"_method", b"_METHOD", b"%5fmethod", b"_%6Dethod", b"%5F%6d%65%74%68%6f%64", b"name", b"=", b"&"]
OTHERS = [b";", b'"', b"'", b" ", b"\r\n", b"x", b"_", b"%"]
SPELLED = st.tuples(*(st.sampled_from([c, f"\\u00{ord(c):02x}", f"\\u00{ord(c):02X}"]) for c in "_method")).map("".join)
MADE = st.lists(st.one_of(st.sampled_from(WORDS + OTHERS), st.binary(max_size=3))).map(b"".join)


def steps_of(search: Generator[None, None, T]) -> tuple[T, int]:
    """Return the result of a search, and the number of its steps."""
    for steps in range(1, 100):
        try:
            next(search)
        except StopIteration as end:
            return end.value, steps
    raise AssertionError("it does not end")


@given(MADE)
def test_a_form_is_read_as_its_parser_reads_it(body: bytes) -> None:
    """Decoded, between separators."""
    text = body.decode(errors="replace")
    named = any(unquote_plus(part.partition("=")[0]) == "_method" for part in re.split("[&;]", text))
    assert steps_of(method_override("", FORM, body)) == ("form" if named else None, 1)


@given(MADE)
def test_a_multipart_form_is_read_as_its_parser_reads_it(body: bytes) -> None:
    """For any text around the name."""
    assert steps_of(method_override("", MULTIPART, body)) == ("form" if FIELD.search(body) else None, 1)


@pytest.mark.parametrize("before", range(-12, 3))
def test_nothing_hides_between_two_slices(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    """A name may begin in one slice and end in the next one."""
    monkeypatch.setattr(bodies, "_SLICE", 1000)
    start = 1000 + before
    form = b"x" * (start - 1) + b"&" + b"%5Fmethod" + b"=PUT"
    multipart = b"x" * (start - 6) + b' name="_method"'
    json = b'{"x": "' + b"x" * (start - 10) + b'","_method":1}'
    found = [
        steps_of(method_override("", headers, body))[0]
        for headers, body in ((FORM, form), (MULTIPART, multipart), (JSON, json))
    ]
    assert found == ["form", "form", "JSON body"]


@given(
    SPELLED,
    st.sampled_from(['{"%s":1}', '{"a":1, "%s" :1}', '{"a":{"%s":1}}', '["%s"]', '{"a":"%s"}', '{"x%s":1}', "%s"]),
)
def test_an_object_is_read_as_its_parser_reads_it(name: str, around: str) -> None:
    """A key of the top-level object, however it is escaped, and nothing else."""
    text = around.replace("%s", name)
    named = around in ('{"%s":1}', '{"a":1, "%s" :1}')
    assert steps_of(method_override("", JSON, text.encode()))[0] == ("JSON body" if named else None)


@pytest.mark.parametrize(
    ("name", "found"), [("_method", "JSON body"), ("\\u005fmethod", "JSON body"), ("\\u00e9", None)]
)
def test_an_object_that_is_too_large_to_be_read_has_no_such_name_at_all(name: str, found: str | None) -> None:
    """At any depth it counts as found: locating it would block the event loop."""
    text = f'{{"a":{{"{name}":[{"[]," * AT_ONCE}1]}}}}'
    assert steps_of(method_override("", JSON, text.encode()))[0] == found


def test_space_before_a_name_is_no_matter_of_its_length() -> None:
    """It is skipped slice by slice."""
    body = b"name" + b" " * bodies._SLICE * 3 + b"=" + b"\n" * bodies._SLICE * 2 + b"_method"
    assert steps_of(method_override("", MULTIPART, body))[0] == "form"
    assert steps_of(method_override("", MULTIPART, body[4:]))[0] is None


@pytest.mark.parametrize("headers", [FORM, MULTIPART, JSON, ()])
def test_a_large_body_takes_a_step_for_each_slice(headers: Headers) -> None:
    """Others can run in between."""
    body = b'"' + bytes(bodies._SLICE * 3) + b'"'
    assert steps_of(method_override("", headers, body)) == (None, 4)


@pytest.mark.parametrize(
    "more", ["[" * 50_000 + "]" * 50_000, "9" * 5000, "1e400", '"\\ud83d"'], ids=["deep", "long", "large", "half"]
)
def test_nothing_hides_a_member_beside_what_python_does_not_read(more: str) -> None:
    """Servers accept deeper nesting, and longer numbers."""
    body = f'{{"a":{more},"_method":"DELETE"}}'.encode()
    assert steps_of(method_override("", JSON, body))[0] == "JSON body"


@pytest.mark.parametrize(
    ("disposition", "found"),
    [
        (b"form-data; name*=utf-8''_method", True),
        (b"form-data; name*=UTF-8'en'%5fmetho%64", True),
        (b"form-data; name*0=_met; name*1=hod", True),
        (b"form-data; name*0*=''%5Fmet; name*1=\"hod\"", True),
        (b'form-data; name="\\_met\\hod"', True),
        (b"form-data; NAME = _Method", True),
        (b"form-data; name=a; filename*=utf-8''_method", False),
        (b'form-data; name="a"; filename="_method"', False),
        (b'form-data; name="method_"', False),
        (b"form-data; filename=x; rename*=utf-8''%5Fmethod", False),
    ],
)
def test_a_name_in_pieces_or_escaped_is_found(disposition: bytes, found: bool) -> None:
    """As some servers read it (RFC 2231 3 and 4), whatever the part's other parameters are."""
    body = b"--x\r\ncontent-Disposition: %b\r\n\r\nDELETE\r\n--x--\r\n" % disposition
    assert steps_of(method_override("", MULTIPART, body))[0] == ("form" if found else None)


def test_a_name_in_pieces_does_not_hide_between_two_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a slice ends."""
    monkeypatch.setattr(bodies, "_SLICE", 1000)
    part = b"Content-Disposition: form-data; name*0=_met; name*1=hod\r\n\r\nx"
    for before in range(930, 1010):
        assert steps_of(method_override("", MULTIPART, b"x" * before + part))[0] == "form"
