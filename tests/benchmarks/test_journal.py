"""The benchmark of the audit log runs, and reports every way in which a line is stored."""

import pytest

from benchmarks import journal


def test_the_cost_of_a_line_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The journal, redacted values, fsync, and the copy to the database are reported."""
    journal.main(["--lines", "20"])
    table = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("|")[1].strip() for row in table] == [
        "one line",
        "-" * 41,
        "in the journal",
        "with two paths of `redact`",
        "with `fsync: always`",
        "with `fsync: always`, 32 at once",
        "from there into SQLite, in the background",
    ]
    assert all(float(number) > 0 for row in table[2:] for number in row.split("|")[2:4])
