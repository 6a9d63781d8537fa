"""A list with Flask and htmx: boosted links, fragments, a session, flashed messages. Prints its port."""

import sys
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from flask import Flask, Response, flash, jsonify, redirect, render_template_string, request, session

HTMX = Path(__file__).parents[2] / "interop" / "node_modules" / "htmx.org" / "dist" / "htmx.min.js"
PAGE = """<!doctype html><html><head><title>{{ title }}</title><script src="/static/htmx.js"></script>
<script>console.log("page " + document.title);</script></head>
<body hx-boost:inherited="true"><h1>{{ title }}</h1>
{% for message in get_flashed_messages() %}<p class="flash">{{ message }}</p>{% endfor %}
<nav><a id="home" href="/">list</a> <a id="about" href="/about">about</a></nav>
{% if items is defined %}<ul id="items">{% for item in items %}<li>{{ item }}</li>{% endfor %}</ul>
<form id="add" hx-post="/items" hx-target="#items" hx-swap="beforeend"><input name="text"><button>add</button></form>
<form id="plain" method="post" action="/clear" hx-boost="false"><button>clear</button></form>
<button id="count" hx-get="/count" hx-target="#number">count</button><b id="number"></b>{% endif %}
</body></html>"""
ARRIVED: list[list[Any]] = []
app = Flask(__name__, static_folder=None)
app.secret_key = "a key of these tests"


@app.before_request
def note_arrival() -> None:
    """Remember what a browser sent."""
    if request.path not in ("/arrived", "/favicon.ico"):
        place = request.headers.get("HX-Current-URL", "").partition(request.host)[2]
        ARRIVED.append(
            [request.method, request.path, sorted(request.cookies), request.headers.get("HX-Request"), place]
        )


@app.get("/")
def home() -> str:
    """The list."""
    return render_template_string(PAGE, title="List", items=session.get("items", []))


@app.get("/about")
def about() -> str:
    """Another page."""
    return render_template_string(PAGE, title="About")


@app.post("/items")
def add() -> str:
    """Add an item, and answer with its fragment."""
    session["items"] = [*session.get("items", []), request.form["text"]]
    return render_template_string("<li>{{ text }}</li>", text=request.form["text"])


@app.post("/clear")
def clear() -> Any:
    """Remove all."""
    session["items"] = []
    flash("All gone")
    return redirect("/", 303)


@app.get("/count")
def count() -> str:
    """The number of items."""
    return str(len(session.get("items", [])))


@app.get("/static/htmx.js")
def htmx() -> Response:
    """The library as it is published."""
    return Response(HTMX.read_text("utf-8"), mimetype="text/javascript")


@app.get("/arrived")
def arrived() -> Any:
    """What arrived since the last call."""
    found = jsonify([*ARRIVED])
    ARRIVED.clear()
    return found


class Quiet(WSGIRequestHandler):
    """Writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing."""


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
