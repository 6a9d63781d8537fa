"""Reports and admin panels of several pages."""

import os
import subprocess
import sys
from pathlib import Path

from tests.corpus.catalog import app, folder
from tests.corpus.visit import Visit


def robot_folder(package: Path, target: Path) -> None:
    """The report and the log of a run of two tests."""
    target.mkdir()
    suite = target / "numbers.robot"
    suite.write_text(
        "*** Test Cases ***\nAdds\n    Should Be Equal As Integers    ${1 + 1}    2\n"
        "Differs\n    [Tags]    known\n    Should Be Equal    a    b\n",
        "utf-8",
    )
    command = [sys.executable, "-m", "robot", "--report", "index.html", "--outputdir", str(target), str(suite)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(package)}, capture_output=True, check=False)
    for name in ("numbers.robot", "output.xml"):
        (target / name).unlink()


@app(
    "Robot Framework report",
    "robotframework",
    "test report: jQuery templates, data in the page",
    robot_folder,
    ignore=(r"\d+ seconds?( ago)?",),
)
async def robot(visit: Visit) -> None:
    """Read the totals."""
    await visit.read("h1", "Numbers")
    await visit.read("#statistics-container")


@app("SB Admin 2", "startbootstrap-sb-admin-2", "admin panel: Bootstrap 4, jQuery, Chart.js", folder())
async def sb_admin(visit: Visit) -> None:
    """Open menus."""
    await visit.read("h1", "Dashboard")
    await visit.click("#alertsDropdown")
    await visit.read(".dropdown-list.show", "Alerts Center")
