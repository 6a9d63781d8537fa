"""Loads a policy file, or lists everything that is wrong in it."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.documents import Section, read
from gateway.documents.files import read_bytes, unreadable
from gateway.errors import DocumentError, Problem
from gateway.policy.backends import read_backends
from gateway.policy.expectations import TestFile, parse_tests, read_tests
from gateway.policy.headers import DEFAULT_RESPONSE, never_in_response
from gateway.policy.limits import checked, read_quotas, read_rates
from gateway.policy.links import read_links
from gateway.policy.masks import JsonPath, parse_json_path
from gateway.policy.obligations import NO_OBLIGATIONS, Obligations
from gateway.policy.origins import parse_origin
from gateway.policy.policy import Policy, read_mode
from gateway.policy.route_rules import Schemas, read_routes, read_sizes
from gateway.policy.routes import Routes
from gateway.policy.tools import read_tools

MAX_FILE = 8 * 1024 * 1024


def load_policy(path: Path, now: float | None = None) -> Policy:
    """Load the policy in the file `path`. `now` is in seconds since the epoch, by default the current time.

    Raises DocumentError.
    """
    return parse_policy(read_file(path), str(path), _beside(path), time.time() if now is None else now)


def load_tests(path: Path) -> TestFile:
    """Load the tests in a `*.test.yaml` file, with the policy that they test. Raises DocumentError."""
    return parse_tests(read_file(path), path)


def parse_policy(text: str, file: str, beside: Callable[[str], str] | None = None, now: float | None = None) -> Policy:
    """Parse the policy in `text`; `file` is its name in messages. Raises DocumentError with every problem.

    `beside` returns the text of a file named relative to the policy (raises ValueError); without it no such file is
    found. Without `now`, the end of report mode is not limited.
    """
    schemas = Schemas(file, beside)
    with _uncollected(), read(text, file) as top:
        top.require("version")
        top.integer("version", 1, minimum=1, maximum=1)
        backends = read_backends(top)
        defaults = _defaults(top)
        routes = read_routes(top, backends, defaults, schemas)
        tools = read_tools(top)
        links = read_links(top)
        frames = tuple(found for text in top.texts("frames") if (found := checked(top, "frames", _frame, text)))
        mode = read_mode(top, now)
        tests = read_tests(top)
        top.report.problems += schemas.problems
    sha = hashlib.sha256(text.encode())
    for schema in schemas.texts:
        sha.update(b"\0" + schema.encode())
    return Policy(
        file=file,
        version=f"sha256:{sha.hexdigest()[:16]}",
        backends=backends,
        routes=Routes(routes),
        tools=tools,
        tests=tests,
        defaults=defaults,
        origins={origin: spec.name for spec in backends.values() for origin in spec.origins},
        only_backend=next(iter(backends)) if len(backends) == 1 else None,
        links=links,
        frames=frames,
        mode=mode,
        sources=(file, *schemas.files),
        reads_body=any(route.reads_body for route in routes),
        largest_request=max((route.decided.obligations.request_limit for route in routes), default=0),
        snapshot=tuple(dict.fromkeys(url for route in routes for url in route.snapshot)),
    )


def _frame(text: str) -> str:
    origin = parse_origin(text)
    if re.search(r"[\[_]", origin):
        raise ValueError(f'"{text[:80]}" can stand in no content security policy: use letters, digits and -')
    return origin


def read_file(path: Path) -> str:
    """Read a text file. Raises DocumentError."""
    try:
        return read_bytes(path, MAX_FILE + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError([Problem(str(path), 1, 1, unreadable(error))]) from error


@contextmanager
def _uncollected() -> Iterator[None]:
    """Disable the cyclic garbage collector, whose walks of a growing tree take half of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _beside(policy: Path) -> Callable[[str], str]:
    """Return a reader of files in or below the policy's folder."""
    folder = Path(os.path.realpath(policy)).parent

    def found(name: str) -> str:
        path = Path(os.path.realpath(folder / name))  # `resolve` raises RuntimeError for a loop of links
        if not path.is_relative_to(folder):
            raise ValueError(f'"{name[:80]}" is outside of the folder of the policy')
        try:
            return read_file(path)
        except DocumentError as error:
            raise ValueError(f'"{name[:80]}" {error.problems[0].message}') from error

    return found


def _defaults(top: Section) -> Obligations:
    limits = top.section("limits")
    responses = top.section("responses")
    sizes = read_sizes(limits, NO_OBLIGATIONS)
    return Obligations(
        timeout=sizes.timeout,
        request_limit=sizes.request_limit,
        response_limit=sizes.response_limit,
        limits=read_rates(limits, ""),
        quotas=read_quotas(limits, ""),
        response_headers=_response_headers(responses),
        mask=_mask(responses),
    )


def _mask(responses: Section) -> tuple[JsonPath, ...]:
    found = (checked(responses, "mask", parse_json_path, text) for text in responses.texts("mask"))
    return tuple(path for path in found if path is not None)


def _response_headers(responses: Section) -> frozenset[str]:
    if "headers" not in responses:
        responses.get("headers")
        return DEFAULT_RESPONSE
    names = frozenset(name.lower() for name in responses.texts("headers"))
    for name in sorted(names):
        if never_in_response(name):
            responses.problem(f'"{name}" never reaches an app: leave it out', "headers")
    return names
