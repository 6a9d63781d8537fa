"""Every content policy that an app may ask for: a list of plain origins, or none."""

from gateway.doors.sandbox import content_policy
from tests.attacks.corpus import family


def test_only_plain_origins_come_into_the_policy() -> None:
    """Nothing in an entry ends a directive or opens more than one origin."""
    wrong = []
    for case in family("sandbox"):
        if "csp" not in case:
            continue
        try:
            outcome = content_policy({**case["csp"]}, "https://host.test") + ";"
        except ValueError:
            outcome = "refused"
        if case["expect"] not in outcome:
            wrong.append(f"{case['id']} ({case['why']}): {outcome}")
        if outcome != "refused" and not outcome.endswith("frame-ancestors https://host.test;"):
            wrong.append(f"{case['id']}: whoever embeds it is not said last: {outcome}")
    assert not wrong, "\n".join(wrong)
