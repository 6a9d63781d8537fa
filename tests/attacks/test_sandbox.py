"""Every content security policy that an app may request is a list of sites, or refused."""

import json
import re

from gateway.doors.sandbox import connections, content_policy, declared_policy
from tests.attacks.corpus import family


def test_only_plain_origins_come_into_the_policy() -> None:
    """No entry can end a directive or match more than one origin."""
    wrong = []
    for case in family("sandbox"):
        if "csp" not in case and "declared" not in case:
            continue
        try:
            if "csp" in case:
                named, outcome = case["csp"], content_policy({**case["csp"]}, "https://host.test") + ";"
            else:
                outcome = declared_policy({"csp": case["declared"]}, "https://host.test") + ";"
                named = {} if "left_out" in case else case["declared"]
            connects = f"({' '.join(['response-origin', *sorted(_patterns(named))])});redirects=allow"
            if connections(outcome) != connects:
                wrong.append(f"{case['id']}: may connect elsewhere: {connections(outcome)}")
        except ValueError:
            outcome = "refused"
        if case["expect"] not in outcome:
            wrong.append(f"{case['id']} ({case['why']}): {outcome}")
        if outcome != "refused" and not outcome.endswith("frame-ancestors https://host.test;"):
            wrong.append(f"{case['id']}: whoever embeds it is not said last: {outcome}")
    assert not wrong, "\n".join(wrong)


def _patterns(csp: dict[str, list[str]]) -> list[str]:
    """The URL patterns for these origins: `ws` is matched by the patterns of `http`."""
    return [json.dumps(re.sub("^ws", "http", origin)) for origins in csp.values() for origin in origins]
