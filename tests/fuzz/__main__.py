"""Fuzz the pure modules, and two doors of a running gateway, guided by coverage.

`python -m tests.fuzz [--seconds N] [TARGET …]`, or `make fuzz`. Inputs that reached new code stay in
`.fuzz/<target>`, where the next run begins; an input that fails is written there as `crash-…`. The exit code is 1 if
one failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SEEDS = Path(__file__).parent / "seeds"
FOUND = Path(".fuzz")
TARGETS = sorted(folder.name for folder in SEEDS.iterdir())
LARGEST = 4096


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Fuzz the packages without I/O, and the doors."
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="time for all targets together (default 60)")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there is {', '.join(TARGETS)}")
    if find_spec("atheris") is None:
        parser.error("atheris is missing: pip install -e '.[fuzz]' (Linux, CPython up to 3.13)")
    targets = options.targets or TARGETS
    failed = [name for name in targets if not _run(name, max(1, options.seconds // len(targets)))]
    print(f"failed: {', '.join(failed)}" if failed else f"no input failed in {', '.join(targets)}")
    return 1 if failed else 0


def _run(name: str, seconds: int) -> bool:
    found = FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    print(f"{name}: {seconds} s", flush=True)
    command = [sys.executable, "-m", "tests.fuzz.one", name, f"-max_total_time={seconds}", f"-max_len={LARGEST}"]
    options = [f"-artifact_prefix={found}/", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"]
    ended = subprocess.run([*command, *options, str(found), str(SEEDS / name)], env=os.environ, check=False)
    return ended.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
