"""Writes the files of the measured gateway: configuration, a policy of any length, and a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

APP = "bench"

_CONFIG = """\
server:
  listen: 127.0.0.1:{port}
{server}apps:
  {app}:
    source: web
    policy: policy.yaml
credentials:
  bench:
    type: client_credentials
    issuer: {backend}
    token_endpoint: {backend}/token
    client_id: bench
    client_secret: "${{env:BENCH_SECRET}}"
    network: private
{upstream}{more}"""

_UPSTREAM = """\
upstreams:
  sdk:
    url: {url}
    network: [127.0.0.0/8]
"""

# The limits are checked for every request, and never reached.
_POLICY = """\
version: 1
backends:
  items:
    url: {backend}
    network: [127.0.0.0/8]
    {credential}
limits:
  timeout: 10s
  rate: [100000000/second per view, 900000000/minute per principal]
routes:
"""


def policy_text(routes: int, backend: str = "http://127.0.0.1:9", credential: str = "") -> str:
    """Return a policy of `routes` rules: `/api/r0/{item}`, `/api/r1/{item}` …, and last `/api/items/{item}`."""
    named = f"credential: {credential}" if credential else ""
    rules = [f'  - {{path: "/api/r{number}/{{item}}", methods: [GET, PUT]}}\n' for number in range(routes - 1)]
    return "".join(
        [
            _POLICY.format(backend=backend, credential=named),
            *rules,
            '  - {path: "/api/items/{item}", methods: [GET, POST]}\n',
        ]
    )


def write(
    folder: Path,
    *,
    port: int,
    backend: str,
    routes: int,
    more: str = "",
    upstream: str = "",
    server: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write all into `folder`, and return the path of gateway.yaml; the journal is stored beside it.

    `server` are settings of that section, `more` are lines of the file.
    """
    config = folder / "gateway.yaml"
    behind = _UPSTREAM.format(url=upstream) if upstream else ""
    settings = "".join(f"  {key}: {value}\n" for key, value in server.items())
    text = _CONFIG.format(port=port, server=settings, app=APP, backend=backend, upstream=behind, more=more)
    config.write_text(text, "utf-8")
    (folder / "policy.yaml").write_text(policy_text(routes, backend, "bench"), "utf-8")
    (folder / "web").mkdir()
    (folder / "web" / "index.html").write_text("<!doctype html><title>Bench</title><p>Bench</p>", "utf-8")
    return config
