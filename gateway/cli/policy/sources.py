"""Loads the policies for a command: given files, or those of gateway.yaml."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gateway.callers.entitlements import AccessRule
from gateway.cli.group import Command, Unusable, config_option
from gateway.config import UpstreamApp, load_config
from gateway.config.secrets import LenientEnvironment
from gateway.documents import load as read_nodes
from gateway.errors import DocumentError, Problem
from gateway.policy import (
    Policy,
    PolicyTest,
    TestFile,
    check_part,
    config_folder,
    is_part,
    load_organisation,
    load_policy,
    load_tests,
)
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
        all_suites = [suite for file in files for suite in reading.suites(file)]
    else:
        all_suites = [reading.suite(f"{policy.file} ({name})", policy) for name, policy in _policies_of(config).items()]
    if reading.problems:
        raise DocumentError(list(dict.fromkeys(reading.problems)))
    return all_suites


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
        elif self._try_load(is_whole, file) and (policy := self._try_load(load, file)) is not None:
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
            test_file = self._test_file(file)
            # Tests in the folder of their policy are already included.
            if test_file is not None and not (
                test_file.policy.resolve() in seen and test_file.policy.parent == file.parent
            ):
                yield from self._alone(file)

    def _alone(self, file: Path) -> Iterator[Suite]:
        test_file = self._test_file(file)
        if test_file is None:
            return
        if not test_file.policy.is_file():
            message = f"its policy {test_file.policy} is not there: name it as `policy`"
            self.problems.append(Problem(str(file), 1, 1, message))
        elif (policy := self._try_load(load, test_file.policy)) is not None:
            yield Suite(str(file), policy, test_file.tests)

    def _test_file(self, file: Path) -> TestFile | None:
        if file not in self._tests:
            self._tests[file] = self._try_load(load_tests, file)
        return self._tests[file]

    def _try_load(self, load: Callable[[Path], T], file: Path) -> T | None:
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
        return name or file.stem, load(file)
    policies = _policies_of(config)
    if name is None and len(policies) == 1:
        name = next(iter(policies))
    if name is None or name not in policies:
        raise Unusable(f"name one of the policies of {config} with --app: {', '.join(policies)}")
    return name, policies[name]


def load(file: Path) -> Policy:
    """Load a policy under the organisation's policy of the nearest gateway.yaml, if it names one.

    Raises DocumentError.
    """
    above = organisation_file(file)
    return load_policy(file, organisation=load_organisation(above) if above is not None else None)


def organisation_file(file: Path) -> Path | None:
    """Return the organisation's policy that the nearest gateway.yaml at or above `file` names."""
    folder = config_folder(Path(os.path.realpath(file)))
    if folder is None:
        return None
    try:
        document = read_nodes((folder / "gateway.yaml").read_text("utf-8"), "gateway.yaml").plain()
    except (OSError, UnicodeDecodeError, DocumentError):
        return None  # a policy can be checked beside a broken configuration
    section = document.get("policy") if isinstance(document, dict) else None
    name = section.get("organisation") if isinstance(section, dict) else None
    return folder / name if isinstance(name, str) and name else None


def is_organisation(file: Path) -> bool:
    """Return whether a file is the organisation's policy of its gateway.yaml."""
    above = organisation_file(file)
    return above is not None and os.path.realpath(above) == os.path.realpath(file)


def is_whole(file: Path) -> bool:
    """Return whether a file is a policy, and neither a part of others nor the organisation's. Raises DocumentError."""
    return not is_organisation(file) and not is_part(file)


def others(files: Sequence[Path], config: Path) -> list[tuple[Path, str]]:
    """Check the parts and the organisation's policy alone; return these files with what they have.

    They are the given ones, those in given folders, and those that the checked policies are made of. Raises
    DocumentError.
    """
    folders = [file for folder in files if folder.is_dir() for file in sorted(folder.rglob("*.y*ml"))]
    candidates = [
        *(file for file in files if not file.is_dir()),
        *(one for one in folders if _is_ours(one, one.parent)),
    ]
    whole = [suite.policy for suite in suites(files, config)]
    parts = [Path(part) for policy in whole for part in policy.parts]
    above = [Path(one.organisation.file) for one in whole if one.organisation is not None]
    problems: list[Problem] = []
    policies: list[tuple[Path, str]] = []
    for file in dict.fromkeys(
        [*(one for one in candidates if not is_test_file(one) and not is_whole(one)), *parts, *above]
    ):
        try:
            policies.append((file, _check(file, file in above or is_organisation(file))))
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise DocumentError(list(dict.fromkeys(problems)))
    return policies


def _check(file: Path, organisation: bool) -> str:
    """Return what a part, or the organisation's policy, has. Raises DocumentError."""
    if organisation:
        top = load_organisation(file)
        return f"an organisation's policy: routes {len(top.rules)}, tools {len(top.tools)}"
    part = check_part(file)
    return f"a part: routes {len(part.routes.all)}, tools {len(part.tools)}"


def access_rules(config: Path, name: str) -> tuple[AccessRule, ...]:
    """Return the access rules of an app or upstream of gateway.yaml; an app of an upstream has those of both."""
    config_read = load_config(config, LenientEnvironment())
    app, upstream = config_read.apps.get(name), config_read.upstreams.get(name)
    if app is not None and isinstance(app.source, UpstreamApp):
        upstream = config_read.upstreams.get(app.source.upstream)
    rules = (app.access if app is not None else None, upstream.access if upstream is not None else None)
    return tuple(rule for rule in rules if rule is not None)


def _policies_of(config: Path) -> dict[str, Policy]:
    """Return the policies of gateway.yaml by app or upstream. Raises `Unusable` and DocumentError."""
    if not config.exists():
        raise Unusable(f"there is no {config} here: name a policy file, or the configuration with --config")
    config_read = load_config(config, LenientEnvironment())
    behind = {name: one.policy for name, one in config_read.upstreams.items() if one.policy is not None}
    return {name: app.policy for name, app in config_read.apps.items()} | behind
