"""Surveys the files of a web app without running them: the requests that they name, and what they need of a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urljoin, urlsplit

from gateway.apps.files import own_files

SUFFIXES: Final = frozenset({".html", ".htm", ".js", ".mjs", ".jsx", ".ts", ".mts", ".tsx", ".vue", ".svelte"})
MAX_FILE: Final = 4 * 1024 * 1024
"""Bytes; larger files are skipped and reported."""

SHOWN_PLACES: Final = 3
"""Places that are kept of a trait, and of requests whose URL is computed."""

_URL = r"""(?:"(?P<double>[^"\s]*)"|'(?P<single>[^'\s]*)'|`(?P<template>[^`\s]*)`)"""
_GET_ONLY = (
    r"""(?![^,(){};]{0,100},\s*\{(?:[^{}]|\{[^{}]{0,300}\}){0,300}?\bmethod["']?\s*:\s*["'`](?!(?:GET|get)["'`]))"""
)
_CALL = re.compile(
    rf"""(?:\bfetch\s*\(                                               # fetch('/…'), not with a method
         |\.open\s*\(\s*["'`](?:GET|get)["'`]\s*,                       # request.open('GET', '/…')
         |(?P<client>\b[A-Za-z_$][\w$]*|\$)\s*\.\s*get(?:JSON)?\s*(?:<[^()]{{0,200}}>\s*)?\(  # axios.get('/…')
         |(?P<stream>\bnew\s+EventSource\s*\()
         |(?P<socket>\bnew\s+WebSocket\s*\()
        )\s*(?:(?P<name>[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*){{0,2}})\s*\+\s*)?{_URL}\s*(?P<plus>\+)?{_GET_ONLY}""",
    re.VERBOSE,
)
_OPTIONS = re.compile(
    rf"""(?:\$http|\baxios|\brequest|(?:\$|\bjQuery)\s*\.\s*ajax)\s*\(\s*\{{
         (?P<before>[^{{}}]{{0,300}}?)\burl["']?\s*:\s*{_URL}(?P<after>[^{{}}]{{0,300}})""",
    re.VERBOSE,
)
"""Requests whose URL is an option: `$http({method: 'GET', url: '/…'})`."""
_CHANGES = re.compile(r"""\b(?:method|type)["']?\s*(?:,|$|:\s*+(?!["'`](?:GET|get)["'`]))""")
_RESOURCE = re.compile(r"""\$resource\s*\(\s*["'`]([^"'`\s]{1,200})["'`]""")
"""A resource of AngularJS: a list, and below it one by its id."""
_COMMENT = re.compile(r"\s*(?://|/?\*)")
_COMPUTED = re.compile(
    r"""(?<!function\ )(?<![.\w$]get\ )\b(?:fetch|axios(?:\s*\.\s*\w+)?)\s*\(\s*(?![\s"'`)/])
      | \.open\s*\(\s*["'`](?:GET|get)["'`]\s*,\s*(?![\s"'`])""",
    re.VERBOSE,
)
"""Requests whose URL is known only when the page runs."""
_CLIENTS: Final = frozenset({"axios", "http", "jQuery", "ky", "$", "$http"})
_CREATED = re.compile(
    r"""\b([A-Za-z_$][\w$]*)\s*=\s*[\w$.]{1,60}(?:\.create|\.extend)\s*\(\s*\{[^{}]{0,300}?\b(?:baseURL|prefixUrl)\s*:\s*["'`]([^"'`\s]{1,200})["'`]"""
)
"""A client of its own with the base of its URLs: `api = axios.create({baseURL: "/api"})`."""
_DEFAULT_BASE = re.compile(r"""\bdefaults\s*\.\s*baseURL\s*=\s*["'`]([^"'`\s]{1,200})["'`]""")
_CONSTANT = re.compile(
    r"""(?:\b(?:const|let|var)\s+|,\s*)([A-Za-z_$][\w$]*)\s*=\s*["'`]((?:https?://[^"'`\s]{1,200})|/[^"'`\s/][^"'`\s]{0,200}|)["'`]\s*(?=[,;\n\r]|$)"""
)
"""A constant with the beginning of URLs: `const API = "/api"`."""
_FOREIGN = re.compile(
    r"""(?:\bfetch|\baxios(?:\.\w+)?|\bnew\s+(?:EventSource|WebSocket)|\.open)\s*\(\s*(?:["'`][A-Za-z]+["'`]\s*,\s*)?"""
    r"""["'`]((?:https|wss)://[A-Za-z0-9.-]+(?::\d+)?)(?=[/?"'`])"""
)
_BASE = re.compile(
    r"""(?:\bbasename["']?\s*[:=]\s*\{?|\bbasePath["']?\s*:|\bcreateWebHistory\s*\(|__sveltekit_\w+\s*=\s*\{\s*base\s*:)"""
    r"""\s*["'`](/[A-Za-z0-9][A-Za-z0-9._~/-]*)["'`]"""
)
_SOCKET_HOST = re.compile(r"""^(?:wss?:|\$\{[^{}]*\})//\$\{[^{}]*\bhost(?:name)?\b[^{}]*\}(?::[^/]*)?(?=/)""")
_SOCKET_JOINED = re.compile(r"""\blocation\s*\.\s*host(?:name)?\s*\+\s*["'`](/[^"'`\s?]{0,200})""")
_SOCKET_IO: Final = "/socket.io"
_FORM = re.compile(r"""<form(?=\s)(?P<attributes>(?:[^<>"']|"[^"]*"|'[^']*'){0,4000})""", re.IGNORECASE)
_LOADS = re.compile(
    r"""<(?:img|source|video|audio|track|script|link)(?=\s)(?P<attributes>(?:[^<>"']|"[^"]*"|'[^']*'){0,4000})""",
    re.IGNORECASE,
)
_SHEET = re.compile("stylesheet|preload", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""(?<=\s)([a-z]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'=<>`{]+))""", re.IGNORECASE)
_NAME = re.compile("[A-Za-z0-9_.-]{1,128}", re.ASCII)
_TOOL = re.compile(r"""\bregisterTool\s*\(\s*\{\s*["']?name["']?\s*:\s*["'`]([A-Za-z0-9_.-]{1,128})["'`]""")
_HOLE = re.compile(r"\$\{([^{}]*)\}")
HOLES: Final = re.compile(r"\{[^{}]*\}")
"""The parameters of a path."""
_LAST_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,31})\W*$", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+|\{[A-Za-z][A-Za-z0-9_]*\}", re.ASCII)
_RELATIVE = re.compile(r"(?:\.{1,2}/)*[A-Za-z0-9_~][A-Za-z0-9._~-]*(?:[/?#]|$)", re.ASCII)


_NEEDED: Final[dict[re.Pattern[str], tuple[str, ...]]] = {}
"""Words of which each match of a pattern of `_any` contains one; to look for them takes a tenth of the time."""


def _any(*patterns: str) -> re.Pattern[str]:
    made = re.compile("|".join(patterns))
    words = [_literal_word(pattern) for pattern in patterns]
    if all(words):
        _NEEDED[made] = tuple(words)
    return made


def _literal_word(pattern: str) -> str:
    """Return the longest word that each match contains; empty if there is none. `pattern` is no alternative itself."""
    plain = re.sub(r"\\.|\[[^\]]*\]", "\0", pattern)
    while plain != (plain := re.sub(r"\([^()]*\)", "\0", plain)):
        pass  # from the innermost group
    return max(re.findall(r"(?<![\w-])[\w-]{3,}(?![\w?*+{-])", plain), key=len, default="")


def _search(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    needed = _NEEDED.get(pattern)
    return pattern.search(text) if needed is None or any(word in text for word in needed) else None


FRAMEWORKS: Final[Mapping[str, re.Pattern[str]]] = {
    "Next.js": _any("__NEXT_DATA__", r"/_next/static/"),
    "Nuxt": _any("__NUXT__", r"/_nuxt/"),
    "SvelteKit": _any("__sveltekit_"),
    "Astro": _any("<astro-island", 'name="generator" content="Astro'),
    "Gatsby": _any("___gatsby"),
    "React": _any(r"\breact-dom\b", "__REACT_DEVTOOLS_GLOBAL_HOOK__", r"react\.element"),
    "Preact": _any(r"\bpreact\b"),
    "Vue": _any(r"__vue_app__", r"\b__VUE__\b", r"\bv-(?:if|for|model|on|bind)[=:]"),
    "Svelte": _any(r"\bsvelte-[0-9a-z]{5,8}\b", "__svelte"),
    "Angular": _any(r"\bng-version\b", "ɵɵ", r"\bng-app\b"),
    "Lit": _any(r"\blitElementVersions\b", r"\blitHtmlVersions\b"),
    "Alpine": _any(r"\bx-data=", r"\balpine(?:\.min)?\.js\b"),
    "htmx": _any(r"\b(?:data-)?hx-(?:get|post|put|delete|boost)=", r"\bhtmx(?:\.min)?\.js\b"),
    "Turbo": _any("<turbo-frame", r"\bdata-turbo\b", r"\bturbo-rails\b"),
    "jQuery": _any(r"\bjQuery\b"),
    "Ember": _any(r"\bember-application\b", r"\bdata-ember-"),
    "Flutter": _any(r"\bflutter_bootstrap\.js\b", r"\b_flutter\b"),
    "Blazor": _any(r"\bblazor\.(?:web|webassembly|server)\.js\b"),
    "Swagger UI": _any(r"\bSwaggerUIBundle\b"),
    "Django": _any(r"\bcsrfmiddlewaretoken\b"),
    "Rails": _any(r"""name=["']csrf-token["']""", r"\bauthenticity_token\b"),
    "Laravel": _any(r"""name=["']_token["']""", r"\blaravel_session\b"),
}
"""Frameworks by what their pages and bundles contain."""

TRAITS: Final[Mapping[str, re.Pattern[str]]] = {
    "history": _any(r"\b(?:push|replace)State\b"),
    "hash routes": _any(r"\bhashchange\b", r"\bcreateWebHashHistory\b", r"\bHashRouter\b"),
    "storage": _any(r"\b(?:local|session)Storage\b"),
    "indexeddb": _any(r"\bindexedDB\b"),
    "cookies": _any(r"\bdocument\s*\.\s*cookie\b"),
    "caches": _any(r"\bcaches\s*\.\s*(?:open|match|keys)\b"),
    "service worker": _any(r"\bserviceWorker\s*\.\s*register\b"),
    "worker": _any(r"\bnew\s+(?:Shared)?Worker\s*\("),
    "webassembly": _any(r"\bWebAssembly\s*\.\s*(?:compile|instantiate|Module)"),
    "websocket": _any(r"\bnew\s+WebSocket\b"),
    "event stream": _any(r"\bnew\s+EventSource\b"),
    "webrtc": _any(r"\bnew\s+(?:webkit|moz)?RTCPeerConnection\b", r"\bnew\s+WebTransport\b"),
    "frames of its own": _any(
        r"""\bcreateElement\(\s*["'`]iframe["'`]""", r"<iframe[^>]{0,500}\bsrcdoc\b", r"\bcontentDocument\b"
    ),
    "plugin content": _any(
        r"(?i:<(?:object|embed)\s[^>]{0,500}?(?:\.(?:pdf|swf|jar|class)\b|application/(?:pdf|x-|java)))"
    ),
    "password": _any(r"""\btype["']?\s*[=:]\s*\{?\s*["'`]?password\b"""),
    "authorization": _any(
        r"""\b[Aa]uthorization["'`]?\s*\]?\s*[:=]\s*(?!["'`]?\s*[,})])""",
        r"""["'`][Aa]uthorization["'`]\s*,""",
        r"""["'`]Bearer """,
    ),
    "login elsewhere": _any(
        r"\bresponse_type=code\b",
        r"""\bresponse_type["']?\s*:\s*["']code\b""",
        r"\boidc-client\b",
        r"\bmsal-browser\b",
        r"\bauth0\b",
    ),
    "windows": _any(r"\bwindow\s*\.\s*open\s*\("),
    "dialogs": _any(r"(?<![.\w$])(?:alert|confirm|prompt)\(", r"\bwindow\s*\.\s*(?:alert|confirm|prompt)\("),
    "synchronous requests": _any(r"\.open\s*\(\s*[^,()]{1,40},[^,()]{1,200},\s*(?:false|!1)\s*\)"),
    "passkeys": _any(r"\bnavigator\s*\.\s*credentials\b"),
    "notifications": _any(r"\bNotification\s*\.\s*requestPermission\b", r"\bpushManager\b"),
    "devices": _any(r"\bnavigator\s*\.\s*(?:usb|bluetooth|serial|hid)\b", r"\bnew\s+PaymentRequest\b"),
    "full screen": _any(r"\brequestFullscreen\b", r"\brequestPointerLock\b"),
}
"""The features that a page needs of its browser, by what its files contain."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The result: path patterns (`/api/cart/{id}`) and tool names, sorted.

    `streams` are the paths whose answers are event streams, `sockets` those of WebSockets, `tools` the page's tools.
    `unread` are files that are too large or not text. `connect` are the origins of other sites that are requested,
    `remote` their paths with the origins, `routed` the paths at which routers begin. `frameworks` and `traits` are by
    name with the place of the first use, `computed_urls` the places of requests whose URL is known only at run time.
    `routing` tells whether scripts decide from the history which page is shown.
    """

    paths: tuple[str, ...] = ()
    streams: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ()
    unread: tuple[Path, ...] = ()
    connect: tuple[str, ...] = ()
    routed: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    remote: tuple[tuple[str, str], ...] = ()
    frameworks: tuple[str, ...] = ()
    traits: Mapping[str, str] = field(default_factory=dict)
    computed_urls: tuple[str, ...] = ()
    files: int = 0


def survey(source: Path, start: str = "/") -> Survey:
    """Survey the web app at `source`, a folder or one HTML file, which is served at `start`."""
    folder = source if source.is_dir() else source.parent
    prefix = urlsplit(start).path.rpartition("/")[0] + "/"
    own = frozenset(own_files(source, prefix)) if source.is_dir() else frozenset()

    def is_own(path: str) -> bool:
        at = path.removeprefix(prefix) if prefix != "/" else path
        return path in own or any((folder / place.lstrip("/")).is_file() for place in (path, at))

    unread: list[Path] = []
    return survey_texts(_texts(source, unread), start=start, is_own=is_own, unread=unread)


def survey_texts(
    texts: Iterable[tuple[str, str]],
    *,
    start: str = "/",
    is_own: Callable[[str], bool] = lambda _: False,
    unread: list[Path] | None = None,
) -> Survey:
    """Survey the texts, by their names, of an app that begins at `start`; `is_own` tells which paths are its files."""
    result = _Collected(start, is_own)
    read = [*texts]
    for _, text in read:
        result.name_bases(text)
    for name, text in read:
        result.take(name, text)
    return result.result(tuple(unread or ()), len(read))


class _Collected:
    """The findings so far. `start` is the URL against which relative URLs of scripts count."""

    def __init__(self, start: str, is_own: Callable[[str], bool]) -> None:
        self._start = start
        self._is_own = is_own
        self._paths: dict[str, str] = {}  # by shape: the names of parameters do not matter
        self._streams: set[str] = set()
        self._sockets: dict[str, str] = {}
        self._tools: set[str] = set()
        self._connect: set[str] = set()
        self._remote: dict[tuple[str, str], None] = {}
        self._routed: dict[str, None] = {}
        self._frameworks: dict[str, None] = {}
        self._traits: dict[str, str] = {}
        self._computed: dict[str, None] = {}
        self._constants: dict[str, set[str]] = {}
        self._bases: dict[str, str] = {}

    def name_bases(self, text: str) -> None:
        """Remember the constants and clients with the beginnings of URLs, which other files may use."""
        for name, value in _CONSTANT.findall(text):
            self._constants.setdefault(name, set()).add(value)
        self._bases |= dict(_CREATED.findall(text))
        if (default := _DEFAULT_BASE.search(text)) is not None:
            self._bases["axios"] = default[1]

    def take(self, name: str, text: str) -> None:
        """Survey one file."""
        forms = [_attributes(match["attributes"]) for match in _FORM.finditer(text)]
        for match in _CALL.finditer(text):
            if not _is_comment(text, match.start()):
                self._call(match)
        for match in _OPTIONS.finditer(text):
            options = match["before"] + match["after"]
            if not (_is_comment(text, match.start()) or _CHANGES.search(options)):
                self._add_read(_url_in(match))
        for match in _RESOURCE.finditer(text):
            if not _is_comment(text, match.start()):
                self._add_read(re.sub(r"/?:[A-Za-z]\w*$", "", match[1]))
                self._add_read(re.sub(r"(?<=/):([A-Za-z]\w*)", r"{\1}", match[1]))
        for form in forms:
            if (action := form.get("action", "")) and form.get("method", "get").lower() == "get":
                self._add(_path(action) if action.startswith("/") else None)
        for match in _LOADS.finditer(text):
            for path in _file_paths(_attributes(match["attributes"])):
                if not self._is_own(path):
                    self._add(path)
        if "WebSocket" in text:
            for path in _SOCKET_JOINED.findall(text):
                self._add(_path(path), self._sockets)
        if _SOCKET_IO in text:
            self._add(f"{_SOCKET_IO}/", self._sockets)
        self._tools.update(_TOOL.findall(text))
        self._tools.update(named for form in forms if _NAME.fullmatch(named := form.get("toolname", "")))
        self._connect.update(re.sub("^ws", "http", match[1]) for match in _FOREIGN.finditer(text))
        self._routed |= dict.fromkeys(match[1] for match in _BASE.finditer(text))
        self._features(name, text)

    def _features(self, name: str, text: str) -> None:
        for framework, pattern in FRAMEWORKS.items():
            if framework not in self._frameworks and _search(pattern, text):
                self._frameworks[framework] = None
        for trait, pattern in TRAITS.items():
            if trait not in self._traits and (match := _search(pattern, text)) is not None:
                self._traits[trait] = _place(name, text, match.start())
        for match in _COMPUTED.finditer(text):
            if len(self._computed) >= SHOWN_PLACES:
                break
            self._computed[_place(name, text, match.start())] = None

    def _call(self, match: re.Match[str]) -> None:
        """Add the path of a request whose URL is written in the file, or begins with a constant."""
        raw = self._written_url(match)
        if raw is None:
            return
        is_socket = match["socket"] is not None
        text = _HOLE.sub(_parameter, _SOCKET_HOST.sub("", raw) if is_socket else raw)
        text = text + "{item}" if match["plus"] and text.endswith("/") and not re.search("[?#]", text) else text
        if re.match("(?:https?|wss?)://", text):
            self._elsewhere(text)
            return
        path = self._resolve(text)
        if is_socket:
            self._add(path, self._sockets)
        elif path is not None and not self._is_own(path):
            self._add(path, stream=match["stream"] is not None)

    def _add_read(self, url: str) -> None:
        """Add the path of a URL of the app's own site that is read."""
        path = self._resolve(_HOLE.sub(_parameter, url))
        if path is not None and not self._is_own(path):
            self._add(path)

    def _written_url(self, match: re.Match[str]) -> str | None:
        """Return the URL with its constants replaced; None if its beginning is unknown, or it is no request."""
        client = match["client"]
        if client is not None and client not in _CLIENTS and client not in self._bases:
            return None  # a map, a router of a server
        raw = _url_in(match)
        if match["template"] is not None:
            raw = _HOLE.sub(lambda hole: self._constant(hole[1].strip()) or hole[0], raw)
        if match["name"] is not None:
            before = self._constant(match["name"])
            if before is None:
                return None
            raw = before + raw
        if client in self._bases and not re.match("[a-z]+://", raw):
            raw = f"{self._bases[client].rstrip('/')}/{raw.lstrip('/')}"
        return raw

    def _elsewhere(self, url: str) -> None:
        """Remember a request to another site."""
        try:
            parts = urlsplit(re.sub("^ws", "http", url))
        except ValueError:
            return
        path = _path(parts.path or "/")
        if path is not None and re.fullmatch(r"[A-Za-z0-9.-]+(?::\d+)?", parts.netloc):
            self._remote[f"{parts.scheme}://{parts.netloc}", path] = None

    def _resolve(self, text: str) -> str | None:
        """Return the path of a URL of the app's own site as a policy writes it."""
        if text.startswith("/"):
            return None if text.startswith("//") else _path(text)
        if not _RELATIVE.match(text):
            return None
        return _path(urlsplit(urljoin(f"https://app.invalid/{self._start.lstrip('/')}", text)).path)

    def _constant(self, name: str) -> str | None:
        """Return the value of a constant; None if it is unknown, or differs between files."""
        values = self._constants.get(name.rpartition(".")[2], set())
        return next(iter(values)) if len(values) == 1 else None

    def _add(self, path: str | None, to: dict[str, str] | None = None, *, stream: bool = False) -> None:
        if path is None:
            return
        shape = HOLES.sub("{}", path)
        (self._paths if to is None else to)[shape] = path
        if stream:
            self._streams.add(shape)

    def result(self, unread: tuple[Path, ...], files: int) -> Survey:
        """Return the whole survey."""
        return Survey(
            paths=tuple(sorted(self._paths.values())),
            streams=frozenset(self._paths[shape] for shape in self._streams),
            tools=tuple(sorted(self._tools)),
            unread=unread,
            connect=tuple(sorted(self._connect)),
            routed=tuple(self._routed),
            sockets=tuple(sorted(self._sockets.values())),
            remote=tuple(sorted(self._remote)),
            frameworks=tuple(self._frameworks),
            traits=self._traits,
            computed_urls=tuple(self._computed),
            files=files,
        )


def _texts(source: Path, unread: list[Path]) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the app's files."""
    root = source if source.is_dir() else source.parent
    for file in _files(source):
        try:
            if file.stat().st_size > MAX_FILE:
                unread.append(file)
                continue
            yield file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError):
            unread.append(file)


def _files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
        return
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        hidden = any(part.startswith(".") or part == "node_modules" for part in parts)
        if not hidden and path.suffix in SUFFIXES and path.is_file():
            yield path


def _is_comment(text: str, at: int) -> bool:
    """Return whether the line at this place is a comment up to there: many libraries show examples in theirs."""
    return _COMMENT.match(text[text.rfind("\n", 0, at) + 1 : at]) is not None


def _url_in(match: re.Match[str]) -> str:
    """Return the URL that `_URL` has matched."""
    return next((match[kind] for kind in ("double", "single", "template") if match[kind] is not None), "")


def _place(name: str, text: str, at: int) -> str:
    return f"{name}:{text.count(chr(10), 0, at) + 1}"


def _attributes(text: str) -> dict[str, str]:
    return {name.lower(): double or single or bare for name, double, single, bare in _ATTRIBUTE.findall(text)}


def _file_paths(element: dict[str, str]) -> Iterator[str]:
    """Yield the absolute paths of an element's files."""
    candidates = [candidate.split()[0] for candidate in element.get("srcset", "").split(",") if candidate.strip()]
    sheet = element.get("href", "") if _SHEET.search(element.get("rel", "")) else ""
    for url in (element.get("src", ""), element.get("poster", ""), sheet, *candidates):
        if url.startswith("/") and (path := _path(url)) is not None:
            yield path


def _path(text: str) -> str | None:
    """Return the path as a policy writes it; None if a placeholder is only a part of a segment."""
    path = re.split("[?#]", text, maxsplit=1)[0]
    segments = path.split("/")[1:]
    if not all(_SEGMENT.fullmatch(segment) for segment in _without_last_slash(segments)) or {".", ".."} & set(segments):
        return None
    names = [segment for segment in segments if segment.startswith("{")]
    return path if len(set(names)) == len(names) else None


def _without_last_slash(segments: list[str]) -> list[str]:
    """Return the segments without the empty one behind a slash at the end."""
    return segments[:-1] if len(segments) > 1 and not segments[-1] else segments


def _parameter(match: re.Match[str]) -> str:
    name = _LAST_NAME.search(match[1])
    return "{" + (name[1] if name else "item") + "}"
