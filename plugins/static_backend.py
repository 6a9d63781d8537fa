"""A backend of JSON files, for an app whose real backend is not there yet.

backends:
  shop: {type: static, folder: fixtures}

`GET /api/products` is answered with `fixtures/api/products.json`, anything else with 404 or 405. The folder is
relative to where the gateway runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gateway.hookspecs import BackendFactory, hookimpl
from gateway.model import Backend, Json, Outbound, Response

_JSON = (("content-type", "application/json"),)


class StaticBackend:
    """Answers from JSON files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()

    async def send(self, request: Outbound) -> Response:
        """Return the file of the request's path. Sends no request."""
        if request.method not in ("GET", "HEAD"):
            return Response(405, (*_JSON, ("allow", "GET, HEAD")), b'{"error": "method-not-allowed"}')
        name = unquote(urlsplit(request.url).path).strip("/")
        file = (self._folder / f"{name}.json").resolve()
        if not file.is_relative_to(self._folder) or not file.is_file():
            return Response(404, _JSON, b'{"error": "not-found"}')
        return Response(200, _JSON, file.read_bytes())

    async def close(self) -> None:
        """Do nothing: no connection is open."""


def _make(name: str, options: Mapping[str, Json]) -> Backend:
    folder = options.get("folder")
    if set(options) != {"folder"} or not isinstance(folder, str) or not Path(folder).is_dir():
        raise ValueError("write {type: static, folder: <an existing folder>}")
    return StaticBackend(Path(folder))


@hookimpl
def register_backend_types() -> Mapping[str, BackendFactory]:
    """Register the type `static`."""
    return {"static": _make}
