"""A line of the log is one line, whatever is in it."""

import logging

from gateway.cli.serve import OneLine


def test_control_characters_are_escaped() -> None:
    """Neither a new line nor a colour can be forged."""
    record = logging.LogRecord("gateway", logging.WARNING, "", 0, "a\nERROR %s", ("\x1b[31m\u202eé",), None)
    assert OneLine("%(levelname)s %(message)s").format(record) == "WARNING a\\nERROR \\x1b[31m\\u202eé"
