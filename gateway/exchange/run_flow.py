"""Drives an auth flow: the one place where its requests are sent."""

from __future__ import annotations

from typing import TypeVar

from gateway.credentials import Flow
from gateway.errors import Refusal
from gateway.model import Backend

T = TypeVar("T")


async def drive(flow: Flow[T], server: Backend) -> T:
    """Send the flow's requests to `server` until it returns its result. Raises the `Refusal` that ends it."""
    try:
        request = next(flow)
        while True:
            try:
                response = await server.send(request)
            except Refusal as refusal:
                request = flow.throw(refusal)
            else:
                request = flow.send(response)
    except StopIteration as end:
        result: T = end.value
        return result
