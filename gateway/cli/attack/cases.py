"""The corpus of attacks: YAML files of cases, with a few `$` words for values that YAML cannot express.

`{$repeat: [text, times]}`, `{$join: [part, …]}`, `{$chars: [code point, …]}`, `{$nest: depth}` (JSON text),
`{$many: [prefix, count]}` (an object of that many members), `{$list: [member, count]}`, `{$merge: [object, object]}`,
`{$first: list}`, `{$second: list}`, `{$third: list}`, `{$text: number}`. A case with `over` is repeated for each of
its members, which replaces `$it`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from gateway.errors import DocumentError, Problem

CaseData = Mapping[str, Any]
"""One case as in its file, expanded; each family has different keys."""

PLACES: Final = ("bundled/attacks", "../tests/attacks/cases")
"""The folders of the corpus: in the wheel, or in a clone."""


def corpus_folder(package: Path) -> Path:
    """Return the corpus folder of the package `gateway` in `package`. Raises DocumentError."""
    for place in PLACES:
        if (package / place).is_dir():
            return package / place
    raise DocumentError([Problem(str(package / PLACES[0]), 1, 1, "the corpus of attacks is not installed")])


def read_family(path: Path) -> list[CaseData]:
    """Read the cases of one file, each with its `family`. Raises DocumentError."""
    try:
        listed = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise DocumentError([Problem(str(path), 1, 1, str(error))]) from error
    return [{"family": path.stem, **case} for entry in listed for case in _spread(entry)]


def read_corpus(folder: Path) -> list[CaseData]:
    """Read every case of every family."""
    return [case for path in sorted(folder.glob("*.yaml")) for case in read_family(path)]


def _spread(entry: dict[str, Any]) -> Iterator[CaseData]:
    """Yield one case, or one for each member of `over`, which maps an id's suffix to the member."""
    over = entry.get("over")
    if over is None:
        yield expand(entry, None)
        return
    rest = {name: value for name, value in entry.items() if name not in ("over", "id")}
    for name, member in over.items():
        yield {"id": f"{entry['id']}-{name}", **expand(rest, expand(member, None))}


def expand(value: Any, it: Any) -> Any:
    """Evaluate the `$` words in `value`; `it` replaces `$it`."""
    if isinstance(value, str):
        return it if value == "$it" else value.replace("$it", it) if isinstance(it, str) else value
    if isinstance(value, list):
        return [expand(part, it) for part in value]
    if not isinstance(value, dict):
        return value
    word = next(iter(value), None)
    if len(value) == 1 and isinstance(word, str) and word in _WORDS:
        return _WORDS[word](expand(value[word], it))
    return {expand(name, it): expand(part, it) for name, part in value.items()}


_WORDS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "$repeat": lambda given: given[0] * given[1],
    "$first": lambda given: given[0],
    "$second": lambda given: given[1],
    "$third": lambda given: given[2],
    "$text": str,
    "$join": "".join,
    "$chars": lambda given: "".join(map(chr, given)),
    "$nest": lambda depth: "[" * depth + "]" * depth,
    "$merge": lambda given: {**given[0], **given[1]},
    "$list": lambda given: [given[0]] * given[1],
    "$many": lambda given: {f"{given[0]}{number}": "x" for number in range(given[1])},
}
