"""The survey of an app's files."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from gateway.apps import survey as survey_of_apps


@pytest.mark.parametrize("seed", range(8))
def test_a_word_that_is_looked_for_first_hides_no_finding(seed: int) -> None:
    """What the patterns find in generated texts is the same with and without the words."""
    source = Path(survey_of_apps.__file__).read_text("utf-8")
    words = re.findall(r"[\w<>=:./\-\"'(]{3,30}", source)
    random = Random(seed)
    text = "".join(random.choice(words) + random.choice(["", " ", "(", "=", "\n"]) for _ in range(8000))
    expected = {name for name, pattern in survey_of_apps.TRAITS.items() if pattern.search(text)}
    frameworks = {name for name, pattern in survey_of_apps.FRAMEWORKS.items() if pattern.search(text)}
    found = survey_of_apps.survey_texts([("a.js", text)])
    assert expected or frameworks
    assert set(found.traits) == expected
    assert set(found.frameworks) == frameworks
