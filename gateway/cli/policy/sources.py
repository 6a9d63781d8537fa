"""Loads the policies for a command: given files, or those of gateway.yaml."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gateway.cli.group import Command, Unusable, config_option
from gateway.config import load_config
from gateway.config.secrets import Unneeded
from gateway.errors import DocumentError, Problem
from gateway.policy import Policy, PolicyTest, TestFile, load_policy, load_tests
from gateway.policy.testing import SUFFIX

T = TypeVar("T")

CONFIG = Path("gateway.yaml")


def policies_option(command: Command) -> Command:
    """Add `--config`, for a command that reads gateway.yaml if no policy file is given."""
    return config_option("Configuration that names the policies, if no file is given.", "config")(command)


@dataclass(frozen=True, slots=True)
class Suite:
    """A policy with its tests; `name` is the user's name for it."""

    name: str
    policy: Policy
    tests: tuple[PolicyTest, ...]


def suites(files: Sequence[Path], config: Path) -> list[Suite]:
    """Return the policies, each with the tests in its file and in `*.test.yaml` beside it that name it.

    A folder means all policies in it, no file those of gateway.yaml. A given `*.test.yaml` is run alone. Raises
    DocumentError with the problems of all files.
    """
    reading = _PolicyReading()
    if files:
        found = [suite for file in files for suite in reading.suites(file)]
    else:
        found = [reading.suite(f"{policy.file} ({name})", policy) for name, policy in _named(config).items()]
    if reading.problems:
        raise DocumentError(list(dict.fromkeys(reading.problems)))
    return found


def is_test_file(path: Path) -> bool:
    """Return whether a file has only tests."""
    return path.name.endswith(SUFFIX)


class _PolicyReading:
    """Reads policies and their tests, continuing after problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._tests: dict[Path, TestFile | None] = {}

    def suites(self, file: Path) -> Iterator[Suite]:
        """Yield the suites of one argument."""
        if file.is_dir():
            yield from self._folder(file)
        elif is_test_file(file):
            yield from self._alone(file)
        elif (policy := self._taken(load_policy, file)) is not None:
            yield self.suite(str(file), policy)

    def suite(self, name: str, policy: Policy) -> Suite:
        """Return a policy with its tests, including those in files beside it."""
        path = Path(policy.file)
        beside = [self._test_file(file) for file in sorted(path.parent.glob(f"*{SUFFIX}"))]
        about = (one for one in beside if one is not None and one.policy.resolve() == path.resolve())
        return Suite(name, policy, (*policy.tests, *(test for one in about for test in one.tests)))

    def _folder(self, folder: Path) -> Iterator[Suite]:
        files = [file for suffix in ("*.yaml", "*.yml") for file in folder.rglob(suffix) if _is_ours(file, folder)]
        own = sorted(file for file in files if not is_test_file(file))
        if not files:
            raise Unusable(f"{folder}: there is no policy in this folder")
        for file in own:
            yield from self.suites(file)
        seen = {file.resolve() for file in own}
        for file in sorted(file for file in files if is_test_file(file)):
            found = self._test_file(file)
            # Tests in the folder of their policy are already included.
            if found is not None and not (found.policy.resolve() in seen and found.policy.parent == file.parent):
                yield from self._alone(file)

    def _alone(self, file: Path) -> Iterator[Suite]:
        found = self._test_file(file)
        if found is None:
            return
        if not found.policy.is_file():
            message = f"its policy {found.policy} is not there: name it as `policy`"
            self.problems.append(Problem(str(file), 1, 1, message))
        elif (policy := self._taken(load_policy, found.policy)) is not None:
            yield Suite(str(file), policy, found.tests)

    def _test_file(self, file: Path) -> TestFile | None:
        if file not in self._tests:
            self._tests[file] = self._taken(load_tests, file)
        return self._tests[file]

    def _taken(self, load: Callable[[Path], T], file: Path) -> T | None:
        try:
            return load(file)
        except DocumentError as error:
            self.problems += error.problems
            return None


def _is_ours(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return file.is_file() and not hidden and file.name != CONFIG.name


def one_policy(file: Path | None, config: Path, name: str | None) -> tuple[str, Policy]:
    """Return a name and its policy: of `file`, else of the app or upstream `name` in gateway.yaml.

    `name` may be None if only one has a policy. Raises `Unusable` and DocumentError.
    """
    if file is not None:
        return name or file.stem, load_policy(file)
    found = _named(config)
    if name is None and len(found) == 1:
        name = next(iter(found))
    if name is None or name not in found:
        raise Unusable(f"name one of the policies of {config} with --app: {', '.join(found)}")
    return name, found[name]


def _named(config: Path) -> dict[str, Policy]:
    """Return the policies of gateway.yaml by app or upstream. Raises `Unusable` and DocumentError."""
    if not config.exists():
        raise Unusable(f"there is no {config} here: name a policy file, or the configuration with --config")
    found = load_config(config, Unneeded())
    behind = {name: one.policy for name, one in found.upstreams.items() if one.policy is not None}
    return {name: app.policy for name, app in found.apps.items()} | behind
