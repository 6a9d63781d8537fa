"""A log entry is one line, whatever text it contains."""

import json
import logging
import sys

import pytest
from aiohttp import web
from aiohttp.http_exceptions import (
    BadHttpMessage,
    BadHttpMethod,
    BadStatusLine,
    ContentEncodingError,
    InvalidHeader,
    InvalidURLError,
    LineTooLong,
    TransferEncodingError,
)

from gateway.cli.logs import JsonLines, NoHttp, OneLine


def test_control_characters_are_escaped() -> None:
    """Neither a new line nor a color can be forged."""
    record = logging.LogRecord("gateway", logging.WARNING, "", 0, "a\nERROR %s", ("\x1b[31m\u202eé",), None)
    assert OneLine("%(levelname)s %(message)s").format(record) == "WARNING a\\nERROR \\x1b[31m\\u202eé"


def test_json_lines() -> None:
    """There is one object per line, with the exception, for any text."""
    try:
        raise ValueError("no\nway")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "a\n%s", ("é\x1b",), sys.exc_info())
    text = JsonLines().format(record)
    said = json.loads(text)
    assert "\n" not in text
    assert (said["level"], said["logger"], said["message"]) == ("error", "x", "a\né\x1b")
    assert "ValueError: no" in said["exception"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BadHttpMessage("Invalid header token:\n\n  b'secret'\n    ^"), "Invalid header token:"),
        (LineTooLong(b"Bearer secret", 8190), "Got more than 8190 bytes when reading:"),
        (LineTooLong(bytearray(b"/?code=secret"), 8190), "Got more than 8190 bytes when reading:"),  # type: ignore[arg-type]  # as it does
        (InvalidHeader(b"x: secret"), "Invalid HTTP header:"),
        (InvalidURLError("http:///?code=secret"), "the target of a request is not a URL"),
        (BadStatusLine("GET /?code=secret HTTP/x"), "a request does not begin with the line of one"),
        (BadHttpMethod("secret"), "a request does not begin with the line of one"),
        (TransferEncodingError("secret"), "the chunks of a body are none"),
        (BadHttpMessage("Missing 'Host' header in request."), "Missing 'Host' header in request."),
    ],
)
def test_what_is_no_http_makes_one_line(error: BadHttpMessage, said: str) -> None:
    """The warning has no traceback, and not the bytes, which may contain a token."""
    record = logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "Error", (), (type(error), error, None))
    assert NoHttp().filter(record)
    line = OneLine("%(levelname)s %(message)s").format(record)
    assert line == f"WARNING a client sent invalid HTTP: {said}"


def test_other_errors_keep_their_traceback() -> None:
    """They are errors of the gateway."""
    other = logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "x", (), (ValueError, ValueError(), None))
    assert NoHttp().filter(other)
    assert other.exc_info is not None


def test_a_body_that_is_not_coded_as_it_says_makes_one_line() -> None:
    """aiohttp meets the error again after its answer, when it skips the rest of the request."""
    try:
        raise web.RequestPayloadError("400") from ContentEncodingError("Can not decode content-encoding: gzip")
    except web.RequestPayloadError:
        record = logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "Unhandled exception", (), sys.exc_info())
    assert NoHttp().filter(record)
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage() == "a client sent invalid HTTP: Can not decode content-encoding: gzip"
