"""One coverage-guided run: `python -m tests.fuzz.one TARGET [libFuzzer options] [folders]`; needs the extra `fuzz`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["gateway", "yaml", "yarl"]):
    from tests.fuzz.doors import LIVE
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Run until the time is over, or an input fails."""
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, {**TARGETS, **LIVE}[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
