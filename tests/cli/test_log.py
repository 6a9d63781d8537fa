"""A line of the log is one line, whatever is in it."""

import json
import logging
import sys

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, ContentEncodingError

from gateway.cli.logs import JsonLines, NoHttp, OneLine


def test_control_characters_are_escaped() -> None:
    """Neither a new line nor a colour can be forged."""
    record = logging.LogRecord("gateway", logging.WARNING, "", 0, "a\nERROR %s", ("\x1b[31m\u202eé",), None)
    assert OneLine("%(levelname)s %(message)s").format(record) == "WARNING a\\nERROR \\x1b[31m\\u202eé"


def test_json_lines() -> None:
    """One object per line, with the exception, whatever is in the text."""
    try:
        raise ValueError("no\nway")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "a\n%s", ("é\x1b",), sys.exc_info())
    text = JsonLines().format(record)
    said = json.loads(text)
    assert "\n" not in text
    assert (said["level"], said["logger"], said["message"]) == ("error", "x", "a\né\x1b")
    assert "ValueError: no" in said["exception"]


def test_what_is_no_http_makes_one_line() -> None:
    """A warning without the way on which it was found; every other error keeps its own."""
    try:
        raise BadHttpMessage("Invalid header\nvalue")
    except BadHttpMessage:
        record = logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "Error handling request", (), sys.exc_info())
    assert NoHttp().filter(record)
    assert (
        OneLine("%(levelname)s %(message)s").format(record) == "WARNING a client sent what is no HTTP: Invalid header"
    )
    other = logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "x", (), (ValueError, ValueError(), None))
    assert NoHttp().filter(other)
    assert other.exc_info is not None


def test_a_body_that_is_not_coded_as_it_says_makes_one_line() -> None:
    """aiohttp meets it again where it has answered, and looks for the end of the request."""
    try:
        raise web.RequestPayloadError("400") from ContentEncodingError("Can not decode content-encoding: gzip")
    except web.RequestPayloadError:
        record = logging.LogRecord("aiohttp.server", logging.ERROR, "", 0, "Unhandled exception", (), sys.exc_info())
    assert NoHttp().filter(record)
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage() == "a client sent what is no HTTP: Can not decode content-encoding: gzip"
