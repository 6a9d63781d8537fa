"""Serves a checkout of web-platform-tests with the `wptserve` of its `tools` folder; runs as a separate process.

    python site.py TOOLS CHECKOUT REPORT

`TOOLS` is the checkout whose `tools` are used, `REPORT` the script that pages get as their testharnessreport.js.
The first line of its output is JSON with the ports.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

_ONE = ("http-private", "http-public", "https-private", "https-public", "ws", "wss", "h2")
_PORTS = {"http": ["auto", "auto"], "https": ["auto", "auto"]} | {name: ["auto"] for name in _ONE}


def main(tools: Path, checkout: Path, report: Path) -> int:
    """Serve until the process is ended."""
    sys.path.insert(0, str(tools / "tools"))
    importlib.import_module("localpaths")  # which puts the rest of the tools on the path
    serve = importlib.import_module("serve.serve")
    page = serve.AnyHtmlHandler
    if "isShadowRealm" not in page.wrapper:  # harnesses that are newer than these tools ask for it
        page.wrapper = page.wrapper.replace("isWorker:", "isShadowRealm: () => false, isWorker:")

    def routes(logger: Any, aliases: Any, config: Any) -> Any:
        print(json.dumps(config.ports), flush=True)
        builder = serve.get_route_builder(logger, aliases, config)
        builder.add_static(str(report), {}, "text/javascript", "/resources/testharnessreport.js")
        return builder

    settings = {
        "browser_host": "localhost",  # as views are: a secure context
        "alternate_hosts": {"alt": "not-localhost.test"},
        "server_host": "127.0.0.1",
        "check_subdomains": False,
        "doc_root": str(checkout),
        "ws_doc_root": tempfile.mkdtemp(),  # no WebSockets: views have none
        "ports": _PORTS,
        "log_level": "critical",
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(settings, file)
        file.flush()
        return int(serve.run(route_builder=routes, config_path=file.name, h2=None, exit_after_start=False) or 0)


if __name__ == "__main__":
    sys.exit(main(*(Path(argument).resolve() for argument in sys.argv[1:4])))
