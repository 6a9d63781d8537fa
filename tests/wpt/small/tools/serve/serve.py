"""A server of the small checkout, with the names that `site.py` uses of the one of web-platform-tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

_HARNESS = "".join(f"<script src=/resources/{name}.js></script>" for name in ("testharness", "testharnessreport"))


class AnyHtmlHandler:
    """The handler that makes a page of a script."""

    wrapper = "isWorker:"


class Routes:
    """Routes to files in other places."""

    def __init__(self) -> None:
        self.static: dict[str, Path] = {}

    def add_static(self, path: str, arguments: object, kind: str, route: str) -> None:
        """Serve the file at `path` under `route`."""
        self.static[route] = Path(path)


def get_route_builder(logger: object, aliases: object, config: object) -> Routes:
    """Return a builder without routes."""
    return Routes()


def run(*, route_builder: Callable[..., Routes], config_path: str, **_: object) -> None:
    """Serve the configured folder on a free port."""
    settings = json.loads(Path(config_path).read_text("utf-8"))
    routes = Routes()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=settings["doc_root"])

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            if path in routes.static:
                self.say(routes.static[path].read_bytes(), "text/javascript")
            elif path.endswith(".any.html"):
                script = path.removesuffix("html") + "js"
                self.say(f"<!doctype html>{_HARNESS}<script src={script}></script>".encode(), "text/html")
            else:
                super().do_GET()

        def say(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    routes = route_builder(None, [], SimpleNamespace(ports={"http": [server.server_port]}))
    server.serve_forever()
