"""The shop's refusals."""

from __future__ import annotations

from collections.abc import Mapping


class ShopError(Exception):
    """A request that the shop refuses: `error` is for programs, `message` for people."""

    def __init__(self, status: int, error: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.error, self.message, self.headers = status, error, message, headers or {}
        super().__init__(message)
