"""Reads the text of gateway.yaml, and its secrets: `${env:NAME}`, `${file:path}`, `${plugin:reference}`."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from gateway.documents import Node, Section
from gateway.documents.nodes import MAX_SIZE
from gateway.documents.reader import read_bytes, unreadable
from gateway.errors import DocumentError, Problem
from gateway.model import Secret

UNSET: Final = "x" * 64
"""A placeholder for each secret that a command does not need."""

MAX_SECRET: Final = 1024 * 1024
"""Bytes of a file with a secret."""

_REFERENCE = re.compile(r"\$\{(env|file|plugin):([^{}]+)\}")


class LenientEnvironment(Mapping[str, str]):
    """The environment of a command that needs only the secrets under the keys `required`; others may be unset."""

    def __init__(self, *required: str) -> None:
        self.required = required

    def __getitem__(self, key: str) -> str:
        return os.environ[key]

    def __iter__(self) -> Iterator[str]:
        return iter(os.environ)

    def __len__(self) -> int:
        return len(os.environ)


class PendingSecret(Secret):
    """A secret that a plugin provides before it is used, under the name `reference`."""

    __slots__ = ("reference",)

    def __init__(self, reference: str) -> None:
        super().__init__("")
        self.reference = reference

    def resolve(self, value: str) -> None:
        """Set the value that the plugin returned."""
        self._value = value


def secret(section: Section, key: str, folder: Path, environ: Mapping[str, str], *, plugins: bool = False) -> Secret:
    """Read the secret under `key`: literal text, or a reference; paths are relative to `folder`.

    With `plugins` it may also be a plugin's, resolved before it is used.
    """
    return _resolve(section.text(key), section, key, folder, environ, plugins=plugins)


def listed_secrets(section: Section, key: str, folder: Path, environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """Read the list of secrets under `key`, each as `secret` does."""
    return tuple(_resolve(text, section, key, folder, environ, plugins=False) for text in section.texts(key))


def _resolve(
    text: str, section: Section, key: str, folder: Path, environ: Mapping[str, str], *, plugins: bool
) -> Secret:
    match = _REFERENCE.fullmatch(text)
    if match is None:
        if "${" in text:
            section.problem("write ${env:NAME} or ${file:path} as the whole value, with nothing around it", key)
        return Secret(text)
    if match[1] == "plugin" and plugins:
        return PendingSecret(match[2])
    if match[1] == "plugin":
        section.problem("plugins give secrets of credentials alone; write ${env:NAME} or ${file:path}", key)
        return Secret("")
    if match[1] == "file":
        section.report.files.add(folder / match[2])
    content = _variable(match[2], environ) if match[1] == "env" else _content(folder / match[2])
    if isinstance(content, Secret):
        return content
    if isinstance(environ, LenientEnvironment) and key not in environ.required:
        return Secret(UNSET)
    section.problem(content, key)
    return Secret("")


def optional_secret(
    section: Section, key: str, folder: Path, environ: Mapping[str, str], *, plugins: bool = False
) -> Secret | None:
    """Read a secret, None if the key is absent."""
    return secret(section, key, folder, environ, plugins=plugins) if section.get(key) is not None else None


def misplaced_secrets(root: Node, allowed: Collection[str], exempt: Sequence[Node] = ()) -> Iterator[Node]:
    """Yield the texts that refer to a secret under a key not in `allowed`, except those in `exempt`."""
    pending: list[tuple[Node, str]] = [(root, "")]
    while pending:
        node, key = pending.pop()
        if any(node is exemption for exemption in exempt):
            continue
        match node.value:
            case str() as text:
                if key not in allowed and _REFERENCE.search(text):
                    yield node
            case Mapping() as entries:
                pending.extend((child, name) for name, child in entries.items())
            case tuple() as items:
                pending.extend((child, "") for child in items)
            case _:
                pass


def config_text(path: Path) -> str:
    """Return the text of gateway.yaml. Raises DocumentError, with the remedy if there is no such file."""
    try:
        return read_bytes(path, MAX_SIZE).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = unreadable(error)
        if isinstance(error, FileNotFoundError):
            reason += "; `webmcp-gateway init` writes a gateway.yaml, --config names another file"
        raise DocumentError([Problem(str(path), 1, 1, reason)]) from error


def unset(name: str) -> str:
    """Return what is wrong without a variable; a reload reports it, too, when none can be added to the process."""
    return f"the environment variable {name} is not set: export it before you start, and restart a gateway that runs"


def _variable(name: str, environ: Mapping[str, str]) -> Secret | str:
    value = environ.get(name)
    return Secret(value) if value else f"{unset(name)}; a ${{file:path}} is read while it runs"


def _content(path: Path) -> Secret | str:
    try:
        value = read_bytes(path, MAX_SECRET).decode().strip("\r\n")
    except (OSError, UnicodeError) as error:
        return f"the file {path} cannot be read: {getattr(error, 'strerror', None) or error}"
    return Secret(value) if value else f"the file {path} is empty"
