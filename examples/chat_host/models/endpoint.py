"""One streamed request to a model's endpoint, with its failures in words for the person."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from examples.chat_host.models.base import ModelError
from examples.chat_host.models.sse import EventReader, ServerEvent

CONNECT_WITHIN = 20.0
SILENT_FOR = 120.0
"""Seconds without a byte after which an answer counts as broken off."""

LARGEST_ERROR = 64 * 1024


@dataclass(slots=True)
class EndpointModel:
    """A model `name` at `base_url`, which `system` instructs; `key` authenticates the chat."""

    http: aiohttp.ClientSession
    base_url: str
    name: str
    key: str = field(default="", repr=False)
    system: str = ""

    @property
    def label(self) -> str:
        """The model's name."""
        return self.name


async def stream_events(
    http: aiohttp.ClientSession, url: str, headers: Mapping[str, str], body: Mapping[str, Any]
) -> AsyncIterator[ServerEvent]:
    """Post `body`, and yield the events of the answer. Raises `ModelError`."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_WITHIN, sock_read=SILENT_FOR)
    accept = {"accept": "text/event-stream", **headers}
    try:
        async with http.post(url, json=body, headers=accept, timeout=timeout, allow_redirects=False) as response:
            if response.status != 200:
                raise await _refusal(response, host)
            if response.content_type != "text/event-stream":
                raise ModelError("broken", f"{host} did not answer with a stream, but with {response.content_type}.")
            reader = EventReader()
            async for piece in response.content.iter_any():
                for event in reader.feed(piece):
                    yield event
    except aiohttp.ClientPayloadError as error:
        raise broken_off() from error
    except TimeoutError as error:
        raise ModelError("unreachable", f"{host} did not answer in time.") from error
    except aiohttp.ClientError as error:
        raise ModelError("unreachable", f"The model's endpoint at {host} cannot be reached.") from error
    except ValueError as error:
        raise ModelError("broken", f"The answer of {host} cannot be read: {error}.") from error


def read_json(event: ServerEvent) -> dict[str, Any]:
    """Return the JSON object of an event. Raises `ModelError`."""
    try:
        read = json.loads(event.data)
    except (ValueError, RecursionError) as error:
        raise ModelError("broken", "The model's endpoint sent something that is not JSON.") from error
    if not isinstance(read, dict):
        raise ModelError("broken", "The model's endpoint sent JSON of a form that is not known.")
    return read


def broken_off() -> ModelError:
    """The stream ended before the answer did."""
    return ModelError("broken", "The answer broke off: the connection to the model ended before it was whole.")


def error_of(kind: str, message: str) -> ModelError:
    """Return the error of an `error` object inside a stream, by the type that the endpoint gave it."""
    if "overload" in kind or "unavailable" in kind:
        return ModelError("overloaded", "The model is overloaded. Try again in a moment.")
    if "rate_limit" in kind or "quota" in kind:
        return ModelError("rate-limited", "The model's endpoint allows no more requests for now.")
    if "authentication" in kind or "permission" in kind or "api_key" in kind:
        return _key_refused("The model's endpoint")
    return ModelError("broken", f"The model reported an error: {_shorten(message) or kind or 'without a reason'}.")


async def _refusal(response: aiohttp.ClientResponse, host: str) -> ModelError:
    """Return the error for an answer that is no success."""
    status = response.status
    text = (await response.content.read(LARGEST_ERROR)).decode(errors="replace")
    message = _shorten(_message_of(text))
    if status in (401, 403):
        return _key_refused(host)
    if status == 429:
        wait = _seconds_of(response.headers.get("retry-after"))
        more = f" It asks to wait {wait:.0f} seconds." if wait else ""
        return ModelError("rate-limited", f"{host} allows no more requests for now.{more}", wait)
    if status == 404:
        return ModelError("not-found", f"{host} does not know this model or address. {message}".strip())
    if status in (502, 503, 504, 529):
        return ModelError(
            "overloaded", f"{host} is overloaded or down ({status}).", _seconds_of(response.headers.get("retry-after"))
        )
    if status == 413 or "context_length" in text or "prompt is too long" in text:
        return ModelError("too-long", "The conversation is too long for this model. Start a new one.")
    if status in (301, 302, 303, 307, 308):
        return ModelError("not-found", f"{host} redirects elsewhere; set the final address of the endpoint.")
    return ModelError("refused", f"{host} refused the request ({status}). {message}".strip())


def _key_refused(host: str) -> ModelError:
    # The endpoint's own words may contain a part of the key.
    return ModelError("key", f"{host} did not accept the key. Check the key in the environment, and start again.")


def _message_of(text: str) -> str:
    """Return `error.message` of a JSON answer, as both APIs have it."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    error = read.get("error") if isinstance(read, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _shorten(text: str) -> str:
    return " ".join(text.split())[:300]


def _seconds_of(value: str | None) -> float | None:
    """Return the seconds of `Retry-After` (RFC 9110, 10.2.3), a number or a date."""
    if value is None:
        return None
    try:
        return min(3600.0, max(0.0, float(value)))
    except ValueError:
        pass
    try:
        return min(3600.0, max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time()))
    except ValueError:
        return None
