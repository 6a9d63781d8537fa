"""The policy: decides without I/O which requests to backends and calls of page tools are allowed."""

from gateway.policy.canonical import canonicalise, canonicalise_in_steps
from gateway.policy.decide import decide, decide_link, decide_tool, may_call_tool
from gateway.policy.destinations import PUBLIC, Network, parse_network
from gateway.policy.explain import CandidateRoute, Explanation, Step, explain, explain_tool, outcome
from gateway.policy.headers import (
    DEFAULT_RESPONSE,
    filter_request_headers,
    filter_response_headers,
    forbid_shared_caching,
    without,
)
from gateway.policy.includes import config_folder
from gateway.policy.load import any_tool, check_part, is_part, load_policy, load_tests, parse_policy, warnings
from gateway.policy.masks import JsonPath
from gateway.policy.messages import visible
from gateway.policy.obligations import (
    REPEATABLE_METHODS,
    SAFE_METHODS,
    AppAuthorization,
    Circuit,
    Cookies,
    Limit,
    Obligations,
    Per,
    Quota,
    Redirects,
    Retry,
    SocketRule,
    Window,
)
from gateway.policy.organisation import load_organisation, parse_organisation
from gateway.policy.page_rules import LinkPattern, Links, tool_pin
from gateway.policy.policy import Organisation, Policy, ReportMode
from gateway.policy.response_rules import (
    RedirectTarget,
    answer_headers,
    leads_nowhere,
    location_for_app,
    redirect_location,
)
from gateway.policy.rules import (
    METHODS,
    BackendSpec,
    Confirm,
    Decision,
    PolicyTest,
    Route,
    ToolRule,
)
from gateway.policy.testing import Coverage, TestFile, TestResult, asked_protocols, coverage, run_tests
from gateway.token_buckets import Rate, TakeResult, take

__all__ = [
    "DEFAULT_RESPONSE",
    "METHODS",
    "PUBLIC",
    "REPEATABLE_METHODS",
    "SAFE_METHODS",
    "AppAuthorization",
    "BackendSpec",
    "CandidateRoute",
    "Circuit",
    "Confirm",
    "Cookies",
    "Coverage",
    "Decision",
    "Explanation",
    "JsonPath",
    "Limit",
    "LinkPattern",
    "Links",
    "Network",
    "Obligations",
    "Organisation",
    "Per",
    "Policy",
    "PolicyTest",
    "Quota",
    "Rate",
    "RedirectTarget",
    "Redirects",
    "ReportMode",
    "Retry",
    "Route",
    "SocketRule",
    "Step",
    "TakeResult",
    "TestFile",
    "TestResult",
    "ToolRule",
    "Window",
    "answer_headers",
    "any_tool",
    "asked_protocols",
    "canonicalise",
    "canonicalise_in_steps",
    "check_part",
    "config_folder",
    "coverage",
    "decide",
    "decide_link",
    "decide_tool",
    "explain",
    "explain_tool",
    "filter_request_headers",
    "filter_response_headers",
    "forbid_shared_caching",
    "is_part",
    "leads_nowhere",
    "load_organisation",
    "load_policy",
    "load_tests",
    "location_for_app",
    "may_call_tool",
    "outcome",
    "parse_network",
    "parse_organisation",
    "parse_policy",
    "redirect_location",
    "run_tests",
    "take",
    "tool_pin",
    "visible",
    "warnings",
    "without",
]
