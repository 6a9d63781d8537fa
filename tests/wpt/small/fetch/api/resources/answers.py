"""Names a header that the policy of the tests therefore admits."""

from typing import Any


def main(_: Any, response: Any) -> None:
    """Send the header."""
    response.headers.set(b"X-Told", b"1")
