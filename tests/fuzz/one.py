"""One coverage-guided run: `python -m tests.fuzz.one TARGET [libFuzzer options] [folders]`; needs the extra `fuzz`."""

from __future__ import annotations

import sys

import atheris

NAME = sys.argv[1] if sys.argv[1:] else ""

with atheris.instrument_imports(include=["gateway", "yaml", "yarl"]):
    from tests.fuzz.targets import TARGETS

    TARGET = TARGETS.get(NAME)
    if TARGET is None:  # these need the whole gateway, which takes long to instrument
        from tests.fuzz.doors import GATEWAY, LIVE

        TARGET = LIVE[NAME]
        GATEWAY.start()  # which counts for no input


def main() -> None:
    """Run until the time is over, or an input fails."""
    del sys.argv[1]
    atheris.Setup(sys.argv, TARGET)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
