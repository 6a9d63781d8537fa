"""The policy: decides without I/O which requests to backends and calls of page tools are allowed."""

from gateway.policy.canonical import canonicalise, canonicalising
from gateway.policy.decide import decide, decide_link, decide_tool
from gateway.policy.destinations import PUBLIC, Network, parse_network
from gateway.policy.explain import Explanation, Step, Tried, explain, explain_tool, outcome
from gateway.policy.gcra import Rate, Taken, take
from gateway.policy.headers import (
    DEFAULT_RESPONSE,
    filter_request_headers,
    filter_response_headers,
    private_caching,
    without,
)
from gateway.policy.links import LinkPattern, Links
from gateway.policy.load import load_policy, load_tests, parse_policy, warnings
from gateway.policy.masks import JsonPath
from gateway.policy.messages import visible
from gateway.policy.obligations import (
    REPEATABLE_METHODS,
    SAFE_METHODS,
    Circuit,
    Cookies,
    Limit,
    Obligations,
    Per,
    Quota,
    Redirects,
    Retry,
    Window,
)
from gateway.policy.policy import Policy, ReportMode
from gateway.policy.response_rules import Landing, answer_headers, landing, leads_nowhere, location_for_app
from gateway.policy.rules import (
    METHODS,
    BackendSpec,
    Confirm,
    Decision,
    PolicyTest,
    Route,
    ToolRule,
)
from gateway.policy.testing import Coverage, TestFile, TestResult, coverage, run_tests
from gateway.policy.tools import tool_pin

__all__ = [
    "DEFAULT_RESPONSE",
    "METHODS",
    "PUBLIC",
    "REPEATABLE_METHODS",
    "SAFE_METHODS",
    "BackendSpec",
    "Circuit",
    "Confirm",
    "Cookies",
    "Coverage",
    "Decision",
    "Explanation",
    "JsonPath",
    "Landing",
    "Limit",
    "LinkPattern",
    "Links",
    "Network",
    "Obligations",
    "Per",
    "Policy",
    "PolicyTest",
    "Quota",
    "Rate",
    "Redirects",
    "ReportMode",
    "Retry",
    "Route",
    "Step",
    "Taken",
    "TestFile",
    "TestResult",
    "ToolRule",
    "Tried",
    "Window",
    "answer_headers",
    "canonicalise",
    "canonicalising",
    "coverage",
    "decide",
    "decide_link",
    "decide_tool",
    "explain",
    "explain_tool",
    "filter_request_headers",
    "filter_response_headers",
    "landing",
    "leads_nowhere",
    "load_policy",
    "load_tests",
    "location_for_app",
    "outcome",
    "parse_network",
    "parse_policy",
    "private_caching",
    "run_tests",
    "take",
    "tool_pin",
    "visible",
    "warnings",
    "without",
]
