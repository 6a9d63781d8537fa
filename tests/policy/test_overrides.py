"""A `_method` in a body is found wherever a server's parser would find it, in a large body too."""

import re
from urllib.parse import unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bulk import MOST
from gateway.policy import overrides
from gateway.policy.overrides import method_override

FORM = (("content-type", "application/x-www-form-urlencoded"),)
JSON = (("content-type", "application/json"),)
MULTIPART = (("content-type", "multipart/form-data; boundary=x"),)

FIELD = re.compile(rb"\bname\s*=\s*(?:\"_method\"|'_method'|_method\b)", re.IGNORECASE)
"""What a lenient parser takes for the field."""

WORDS = [b"_method", b"_METHOD", b"%5fmethod", b"_%6Dethod", b"%5F%6d%65%74%68%6f%64", b"name", b"=", b"&"]
OTHERS = [b";", b'"', b"'", b" ", b"\r\n", b"x", b"_", b"%"]
SPELLED = st.tuples(*(st.sampled_from([c, f"\\u00{ord(c):02x}", f"\\u00{ord(c):02X}"]) for c in "_method")).map("".join)
MADE = st.lists(st.one_of(st.sampled_from(WORDS + OTHERS), st.binary(max_size=3))).map(b"".join)


@given(MADE)
def test_a_form_is_read_as_its_parser_reads_it(body: bytes) -> None:
    """Decoded, between separators."""
    text = body.decode(errors="replace")
    named = any(unquote_plus(part.partition("=")[0]) == "_method" for part in re.split("[&;]", text))
    assert method_override("", FORM, body) == ("form" if named else None)


@given(MADE)
def test_a_multipart_form_is_read_as_its_parser_reads_it(body: bytes) -> None:
    """Whatever stands around the name."""
    assert method_override("", MULTIPART, body) == ("form" if FIELD.search(body) else None)


@pytest.mark.parametrize("before", range(-12, 3))
def test_nothing_hides_between_two_slices(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    """A name that begins in one slice and ends in the next one is found."""
    monkeypatch.setattr(overrides, "_SLICE", 1000)
    start = 1000 + before
    form = b"x" * (start - 1) + b"&" + b"%5Fmethod" + b"=PUT"
    multipart = b"x" * (start - 6) + b' name="_method"'
    assert (method_override("", FORM, form), method_override("", MULTIPART, multipart)) == ("form", "form")


@given(
    SPELLED,
    st.sampled_from(['{"%s":1}', '{"a":1, "%s" :1}', '{"a":{"%s":1}}', '["%s"]', '{"a":"%s"}', '{"x%s":1}', "%s"]),
)
def test_an_object_is_read_as_its_parser_reads_it(name: str, around: str) -> None:
    """The key of the object itself, however it is spelled, and nothing else."""
    text = around.replace("%s", name)
    named = around in ('{"%s":1}', '{"a":1, "%s" :1}')
    assert method_override("", JSON, text.encode()) == ("JSON body" if named else None)


@pytest.mark.parametrize(
    ("name", "found"), [("_method", "JSON body"), ("\\u005fmethod", "JSON body"), ("\\u00e9", None)]
)
def test_an_object_that_is_too_large_to_be_read_has_no_such_name_at_all(name: str, found: str | None) -> None:
    """To find where in it the name stands would hold up all others."""
    text = f'{{"a":{{"{name}":[{"[]," * MOST}1]}}}}'
    assert method_override("", JSON, text.encode()) == found
