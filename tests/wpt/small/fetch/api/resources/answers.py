"""Names a header that the policy of the tests then admits."""

from typing import Any


def main(_: Any, response: Any) -> None:
    """Send it."""
    response.headers.set(b"X-Told", b"1")
