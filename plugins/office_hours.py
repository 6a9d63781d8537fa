"""Office hours: outside of them, calls that need an approval are declined at once.

WEBMCP_GATEWAY_OFFICE_HOURS is when people answer, such as `mon-fri 08:00-18:00`, in this machine's time zone. Needs
`approvals: {ask: [console, elicitation, cli, plugin]}`.
"""

from __future__ import annotations

import datetime
import os
import re

from gateway.hookspecs import hookimpl
from gateway.model import Question

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
HOURS = re.compile(r"(?P<first>[a-z]{3})-(?P<last>[a-z]{3}) (?P<opens>\d\d:\d\d)-(?P<closes>\d\d:\d\d)")


@hookimpl
def ask_approval(question: Question) -> bool | None:
    """Decline outside of office hours; within them the other ways ask."""
    hours = os.environ.get("WEBMCP_GATEWAY_OFFICE_HOURS")
    if hours is None:
        return None
    match = HOURS.fullmatch(hours)
    if match is None or not {match["first"], match["last"]} <= set(DAYS):
        raise ValueError("WEBMCP_GATEWAY_OFFICE_HOURS must be such as `mon-fri 08:00-18:00`")
    at = datetime.datetime.fromtimestamp(question.created, datetime.UTC).astimezone()
    in_week = DAYS.index(match["first"]) <= at.weekday() <= DAYS.index(match["last"])
    return None if in_week and match["opens"] <= f"{at:%H:%M}" < match["closes"] else False
