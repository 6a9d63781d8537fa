"""Notes as a Django project in one file: sessions, CSRF, messages, templates. Prints its port."""

import json
import sys
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from django.conf import settings
from django.contrib import messages
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import path

TEMPLATE = """<!doctype html><html><head><title>Notes</title><script>
console.log("page " + document.title);
async function like() {
  const token = /csrftoken=([^;]*)/.exec(document.cookie)[1];
  const answer = await fetch("/like", { method: "POST", headers: { "X-CSRFToken": token } });
  document.querySelector("#likes").textContent = (await answer.json()).likes;
}
</script></head><body><h1>Notes of {{ name|default:"nobody" }}</h1>
{% for message in messages %}<p class="flash">{{ message }}</p>{% endfor %}
<ul>{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>
<form id="login" method="post" action="/login">{% csrf_token %}<input name="name"><button>log in</button></form>
<form id="note" method="post" action="/note">{% csrf_token %}<input name="text"><button>note</button></form>
<form id="forged" method="post" action="/note"><input name="text" value="forged"><button>forge</button></form>
<button id="like" onclick="like()">like</button><b id="likes"></b>
<a id="out" href="/logout">log out</a></body></html>"""
ARRIVED: list[list[Any]] = []

settings.configure(
    SECRET_KEY="a key of these tests",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    MESSAGE_STORAGE="django.contrib.messages.storage.session.SessionStorage",
    INSTALLED_APPS=["django.contrib.messages"],
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
        "django.middleware.security.SecurityMiddleware",
    ],
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "loaders": [("django.template.loaders.locmem.Loader", {"notes.html": TEMPLATE})],
                "context_processors": ["django.contrib.messages.context_processors.messages"],
            },
        }
    ],
)


def note_arrival(request: HttpRequest) -> None:
    """Remember what a browser sent."""
    of_own = request.headers.get("Origin", "").endswith(request.get_host())
    ARRIVED.append([request.method, request.path, sorted(request.COOKIES), of_own, "Referer" in request.headers])


def home(request: HttpRequest) -> HttpResponse:
    """The page."""
    note_arrival(request)
    shown = {"name": request.session.get("name"), "notes": request.session.get("notes", [])}
    return render(request, "notes.html", shown)


def login(request: HttpRequest) -> HttpResponse:
    """Begin a session."""
    note_arrival(request)
    request.session["name"] = request.POST["name"]
    messages.info(request, f"Welcome, {request.POST['name']}")
    return redirect("/")


def note(request: HttpRequest) -> HttpResponse:
    """Add a note."""
    note_arrival(request)
    request.session["notes"] = [*request.session.get("notes", []), request.POST["text"]]
    messages.info(request, "Noted")
    return redirect("/")


def like(request: HttpRequest) -> HttpResponse:
    """Count a click, for a script with the token of its cookie."""
    note_arrival(request)
    request.session["likes"] = request.session.get("likes", 0) + 1
    return JsonResponse({"likes": request.session["likes"]})


def logout(request: HttpRequest) -> HttpResponse:
    """End the session."""
    note_arrival(request)
    request.session.flush()
    return redirect("/")


def arrived(_: HttpRequest) -> HttpResponse:
    """What arrived since the last call."""
    found = json.dumps(ARRIVED)
    ARRIVED.clear()
    return HttpResponse(found, content_type="application/json")


urlpatterns = [
    path("", home),
    path("login", login),
    path("note", note),
    path("like", like),
    path("logout", logout),
    path("arrived", arrived),
]


class Quiet(WSGIRequestHandler):
    """Writes no log."""

    def log_message(self, format: str, *args: object) -> None:
        """Do nothing."""


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, get_wsgi_application(), handler_class=Quiet)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
