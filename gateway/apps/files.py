"""Reads the files of an app's folder, as data: URLs or text, and never one outside of it; problems name their place."""

from __future__ import annotations

import base64
import codecs
import errno
import hashlib
import mimetypes
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from gateway.documents.reader import read_bytes
from gateway.errors import DocumentError, Problem, Reason, Refusal
from gateway.model import Response
from gateway.policy.page_rules import NO_EXTERNAL, External

LARGEST: Final = 64 * 1024 * 1024
"""Characters of a packed page: small files that include each other often would otherwise fill all memory."""

TOO_LARGE: Final = "is left out: with this the packed page has more than 64 MiB"


@lru_cache(maxsize=4)
def _line_starts(text: str) -> list[int]:
    return [0, *(newline.end() for newline in re.finditer("\n", text))]


@dataclass(frozen=True, slots=True)
class Text:
    """The text of the file `file`, or the part of it that starts at `start`."""

    file: str
    whole: str
    start: int = 0

    def problem(self, offset: int, message: str) -> Problem:
        """Return a problem with `message` at the character `offset` of this part."""
        at = self.start + offset
        lines = _line_starts(self.whole)
        line = bisect_right(lines, at)
        return Problem(self.file, line, at - lines[line - 1] + 1, message)

    def error(self, offset: int, message: str) -> DocumentError:
        """Return an error with `message` at `offset`, to be raised."""
        return DocumentError([self.problem(offset, message)])


@dataclass(frozen=True, slots=True)
class Splice:
    """A replacement of the characters from `start` to `end` by `text`."""

    start: int
    end: int
    text: str


def splice(text: str, splices: list[Splice]) -> str:
    """Apply all `splices`, which do not overlap; several at one place keep their order."""
    parts: list[str] = []
    at = 0
    for part in sorted(splices, key=lambda each: each.start):
        parts += (text[at : part.start], part.text)
        at = part.end
    return "".join((*parts, text[at:]))


MEDIA_TYPES = {
    ".apng": "image/apng",
    ".avif": "image/avif",
    ".bmp": "image/bmp",
    ".cur": "image/x-icon",
    ".gif": "image/gif",
    ".ico": "image/x-icon",
    ".jfif": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".eot": "application/vnd.ms-fontobject",
    ".otf": "font/otf",
    ".ttf": "font/ttf",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".aac": "audio/aac",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".m4v": "video/mp4",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".oga": "audio/ogg",
    ".ogg": "audio/ogg",
    ".ogv": "video/ogg",
    ".opus": "audio/ogg",
    ".wav": "audio/wav",
    ".weba": "audio/webm",
    ".webm": "video/webm",
    ".vtt": "text/vtt",
}
"""The types that may be embedded. The operating system's table is not used: the result must not depend on it."""

_UNREAD = frozenset({".eot"})
"""Formats in style sheets for browsers that show no views: embedded without their bytes."""

_FALLBACK: Final = "cp1252"
"""The encoding of a text that declares none and is not UTF-8 (HTML, 13.2.3.2)."""

_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
"""Byte order marks, and the encodings of their texts (Encoding, 6)."""

_DECLARES: Final = re.compile(
    rb"""^@charset "([^"]{1,40})";|<meta[^>]{1,200}?charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE
)
_PRESCAN: Final = 1024
"""Bytes in which a text must declare its encoding (HTML, 13.2.3.2)."""

_NAMELESS = (ValueError, OSError, RuntimeError)
"""Python's errors for an invalid URL, an impossible file name, and a symbolic link to itself."""

ELSEWHERE: Final = (
    "is on another site, and left out: name it under `external` in the policy, take it in once by `pack --vendor`, or "
    "save it in the app's folder"
)
"""The end of a message about a file of another site."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference in a file: `url` as written, at `offset` of `text`."""

    url: str
    text: Text
    offset: int

    def error(self, message: str) -> DocumentError:
        """Return an error at this place, to be raised."""
        return self.text.error(self.offset, message)

    def problem(self, message: str) -> Problem:
        """Return a problem at this place."""
        return self.text.problem(self.offset, message)


def _ignore(_: Problem) -> None:
    """Drop a problem, where the caller wants none."""


def is_embedded(url: str) -> bool:
    """Return whether there is nothing to fetch: a `data:` URL, a fragment, an empty URL."""
    return url.strip() == "" or url.strip().startswith(("#", "data:", "about:", "blob:"))


@dataclass(frozen=True, slots=True)
class VendorFiles:
    """Files of other sites in the folder `folder`, by their URLs, and these by the files."""

    folder: Path
    files: Mapping[str, Path]
    urls: Mapping[Path, str] = field(default_factory=dict)

    def find(self, url: str) -> Path | None:
        """Return the file that was taken from a URL; None if none was."""
        absolute = f"https:{url.strip()}" if url.strip().startswith("//") else url.strip()
        return self.files.get(absolute.partition("#")[0])


VENDORED_AGAIN: Final = "remove the folder of `pack --vendor` beside the app, and run it again"

_DIGEST: Final = re.compile(r"(sha256|sha384|sha512)-([A-Za-z0-9+/_-]+={0,2})")


def has_digest(body: bytes, integrity: str) -> bool:
    """Return whether a file has one of the digests of the strongest kind that is named (SRI, 3.3.5)."""
    named = _DIGEST.findall(integrity)
    strongest = max((kind for kind, _ in named), default="")
    digests = [digest for kind, digest in named if kind == strongest]
    own_digest = base64.b64encode(hashlib.new(strongest, body).digest()).decode() if strongest else ""
    return not digests or own_digest in (digest.replace("-", "+").replace("_", "/") for digest in digests)


@dataclass(frozen=True, slots=True)
class FileFindings:
    """References of an app to files outside of its folder: of other sites by kind, and starts of paths before files.

    `foreign` are pairs of a kind of `external` in a policy and an absolute URL.
    """

    foreign: list[tuple[str, str]] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder `root` of an app, which its pages address by the URL path `base`.

    `routed` tells whether the backend answers a GET of a path or an absolute URL: such a file is loaded when the page
    runs. `warn` receives the problems of files that can be packed all the same. `external` is what the policy opens,
    and `vendored` what was taken into the app.
    """

    root: Path
    base: str = "/"
    routed: Callable[[str], bool] = lambda _: False
    warn: Callable[[Problem], None] = _ignore
    external: External = NO_EXTERNAL
    findings: FileFindings = field(default_factory=FileFindings)
    vendored: VendorFiles = field(default_factory=lambda: VendorFiles(Path(), {}))

    def opens(self, url: str, *kinds: str) -> bool:
        """Return whether the policy lets the page load `url` from another site by itself, as one of `kinds`."""
        return bool(self.external) and self.vendored.find(url) is None and self.external.allows(url, *kinds)

    def absolute(self, url: str, beside: Path) -> str:
        """Return `url`, found in the file `beside`; that of another site if this file was taken from there."""
        home = self.vendored.urls.get(beside)
        return url if home is None or is_embedded(url) else urljoin(home, url.strip())

    def integrity_of(self, url: str) -> str | None:
        """Return the digest of a script of another site that the policy opens; None for any other script."""
        absolute = f"https:{url.strip()}" if url.strip().startswith("//") else url.strip()
        return self.external.scripts.get(absolute) if self.vendored.find(url) is None else None

    def url_to_write(self, url: str, beside: Path) -> str | None:
        """Return the URL to write for `url`, found in the file `beside`, if it is embedded or a file of the backend.

        The result is `url` itself, or its path from the root; None if it is a file of the folder.
        """
        if is_embedded(url):
            return url
        try:
            parts = urlsplit(url.strip())
            if parts.netloc:
                return url if parts.scheme in ("", "http", "https") and self.routed(url.strip()) else None
            if parts.scheme or not parts.path:
                return None
            place = beside.parent.relative_to(self.root.resolve()).as_posix()
            path = urljoin(f"{self.base.rpartition('/')[0]}/{place}/".replace("/./", "/"), parts.path)
            if not self.routed(path) or self._at(path).is_file():
                return None
            return url if parts.path.startswith("/") else parts._replace(path=path).geturl()
        except _NAMELESS:
            return None

    def _at(self, path: str) -> Path:
        return self.root / unquote(path).removeprefix(self.base).lstrip("/")

    def path_from_root(self, url: str, beside: Path) -> str:
        """Return the path from the root of the app's site for `url`, found in the file `beside`; other URLs as written.

        It is for a file that is not in the folder: the page asks for it when it runs, as it would on its own site.
        """
        try:
            parts = urlsplit(url.strip())
            if parts.scheme or parts.netloc or not parts.path:
                return url
            place = beside.parent.relative_to(self.root.resolve()).as_posix()
            path = urljoin(f"{self.base.rpartition('/')[0]}/{place}/".replace("/./", "/"), parts.path)
            return parts._replace(path=path).geturl()
        except _NAMELESS:
            return url

    def find(self, reference: Reference, beside: Path, kind: str, *, routable: bool = True) -> Path:
        """Return the file of `reference`, found in the file `beside`. Raises `DocumentError`.

        `kind` is that of `external` in a policy. `routable`: the backend might have it instead.
        """
        url = reference.url.strip()
        try:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                if (download := self.vendored.find(url)) is not None:
                    return download
                if parts.netloc and parts.scheme in ("", "http", "https"):
                    self.findings.foreign.append((kind, url if parts.scheme else f"https:{url}"))
                raise reference.error(f"{url[:200]} {ELSEWHERE}")
            path = unquote(parts.path)
            if "\0" in path:
                raise reference.error(f"{url[:80]} can name no file: %00 is in no name")
            target = (self._at(parts.path) if path.startswith("/") else beside.parent / path).resolve()
            if not target.is_relative_to(self.root.resolve()):
                raise reference.error(f"{url} lies outside of the app's folder")
            if not target.is_file():
                raise reference.error(self._missing_message(url, path, routable=routable))
        except _NAMELESS as error:
            raise reference.error(f"{url[:80]} can name no file: {error}") from error
        return target

    def _missing_message(self, url: str, path: str, *, routable: bool) -> str:
        """Return the message for a file that is not there, with what is most likely meant."""
        message = f"{url}: there is no such file in the app's folder"
        start, _, rest = path.removeprefix("/").partition("/")
        while path.startswith("/") and rest:
            if (self.root / rest).is_file():
                self.findings.starts.append(f"/{start}/")
                return f"{message}, but there is {rest}: set `start: /{start}/` at the app if it lives there"
            name, _, rest = rest.partition("/")
            start = f"{start}/{name}"
        return message + (
            "; if the backend has it, let the policy (`pack --policy`) allow GET of it" if routable else ""
        )

    def url(self, path: Path) -> str:
        """Return the path on the app's site of the file `path`, which is in the folder."""
        return self.base.rpartition("/")[0] + "/" + quote(path.relative_to(self.root.resolve()).as_posix())

    def data_url(self, reference: Reference, beside: Path, kind: str = "images") -> str:
        """Return the file of `reference` as a `data:` URL, with its fragment. Raises `DocumentError`."""
        path = self.find(reference, beside, kind)
        media_type = MEDIA_TYPES.get(path.suffix.lower())
        if media_type is None:
            raise reference.error(f"{reference.url}: files named {path.suffix or path.name} cannot be embedded")
        fragment = urlsplit(reference.url.strip()).fragment
        if path.suffix.lower() in _UNREAD:
            return f"data:{media_type},"
        encoded = base64.b64encode(_read(path, reference.url, reference)).decode("ascii")
        return f"data:{media_type};base64,{encoded}" + (f"#{fragment}" if fragment else "")

    def text(self, path: Path, reference: Reference | None = None, charset: str = "") -> Text:
        """Return the text of a file; what is not UTF-8 is decoded as browsers do, by `charset` or what it declares.

        Raises `DocumentError` if it cannot be read.
        """
        real = self.root.resolve()
        name = (self.root / path.relative_to(real) if path.is_relative_to(real) else path).as_posix()
        reference = reference or Reference(name, Text(name, ""), 0)
        raw = _read(path, name, reference)
        marked_encoding = next((encoding for mark, encoding in _MARKS if raw.startswith(mark)), "")
        declared = marked_encoding or encoding_of(charset) or _declared_encoding(raw)
        encoding = declared or "utf-8"
        try:
            text = Text(name, raw.decode(encoding).removeprefix("\ufeff"))
        except UnicodeDecodeError as error:
            encoding = declared or _FALLBACK
            text = Text(name, raw.decode(encoding, "replace").removeprefix("\ufeff"))
            before = raw[: error.start].decode(encoding, "replace").removeprefix("\ufeff")
            self.warn(text.problem(len(before), f"this is not UTF-8, and is read as {encoding}: save it as UTF-8"))
        return text


def encoding_of(label: str) -> str:
    """Return Python's name of the encoding that browsers use for `label` (Encoding, 4.2); empty if there is none."""
    try:
        encoding = codecs.lookup(label.strip()).name if label.strip() else ""
    except (LookupError, ValueError):
        return ""
    if encoding.startswith("utf-16"):
        return "utf-8"  # a UTF-16 text could not have been read up to its own declaration (HTML, 13.2.3.2)
    return _FALLBACK if encoding in ("iso8859-1", "ascii", "cp1252") else encoding


def _declared_encoding(raw: bytes) -> str:
    """Return the encoding that a text declares itself; empty if it declares none."""
    match = _DECLARES.search(raw[:_PRESCAN])
    return encoding_of((match[1] or match[2]).decode("ascii", "replace")) if match is not None else ""


def _read(path: Path, name: str, reference: Reference) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:  # removed since it was found, or unreadable
        raise reference.error(f"{name} cannot be read: {error.strerror}") from error


MAX_FILES: Final = 20_000
"""Files of one app; a folder with more is not a bundler's output."""

INDEX: Final = "index.html"
"""The page of a folder, which is also served at the folder's own address."""

_SAFE: Final = "/-._~!$&'()*+,=:@"


def own_files(source: Path, prefix: str = "/") -> Mapping[str, Path]:
    """Return the files by their canonical paths, without hidden ones and links out of it; none for a one-file app.

    `prefix` is the path at which the folder is served, beside the root.
    """
    if not source.is_dir():
        return {}
    root = source.resolve()
    places: dict[str, Path] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(os.path.realpath(Path(folder) / name))
            if not name.startswith(".") and path.is_relative_to(root) and path.is_file() and len(places) < MAX_FILES:
                url = "/" + quote((Path(folder) / name).relative_to(root).as_posix(), safe=_SAFE)
                places[url] = path
                if name == INDEX:
                    places[url.removesuffix(INDEX)] = path
    return places if prefix == "/" else {f"{prefix[:-1]}{url}": path for url, path in places.items()} | places


def media_type(path: Path) -> str:
    """Return the media type of a file's response."""
    return mimetypes.guess_type(path.name)[0] or "application/octet-stream"


def own_file(path: Path, method: str, url: str, limit: int) -> Response | None:
    """Return the file as a response; None if it is missing, or has become a link.

    Raises `Refusal` (`response-too-large`) if it is larger than `limit` bytes.
    """
    try:
        if os.path.realpath(path) != str(path):
            return None
        body = read_bytes(path, limit)
    except OSError as error:
        if error.errno != errno.EFBIG:
            return None
        detail = f"This file of the app is larger than {limit:,} bytes: raise `limits: {{response: …}}` in the policy."
        raise Refusal(Reason.RESPONSE_TOO_LARGE, detail) from error
    headers = (("content-type", media_type(path)), ("cache-control", "no-cache"))
    if method == "HEAD":
        return Response(200, headers, b"", url, reason_phrase="OK", length=len(body))
    return Response(200, headers, body, url, reason_phrase="OK")
