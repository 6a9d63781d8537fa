"""The policy: what may be asked of a backend and of a page's tools, decided without any I/O."""

from gateway.policy.answers import Landing, answer_headers, landing
from gateway.policy.canonical import canonicalise
from gateway.policy.decide import decide, decide_tool
from gateway.policy.explain import Explanation, Step, TestResult, Tried, explain, outcome, run_tests
from gateway.policy.gcra import Rate, Taken, take
from gateway.policy.headers import (
    DEFAULT_RESPONSE,
    filter_request_headers,
    filter_response_headers,
    private_caching,
    without,
)
from gateway.policy.load import load_policy, parse_policy
from gateway.policy.messages import visible
from gateway.policy.network import PUBLIC, Network, parse_network
from gateway.policy.policy import Policy
from gateway.policy.rules import (
    METHODS,
    SAFE_METHODS,
    BackendSpec,
    Confirm,
    Decision,
    Limit,
    Obligations,
    Per,
    PolicyTest,
    Route,
    ToolRule,
)

__all__ = [
    "DEFAULT_RESPONSE",
    "METHODS",
    "PUBLIC",
    "SAFE_METHODS",
    "BackendSpec",
    "Confirm",
    "Decision",
    "Explanation",
    "Landing",
    "Limit",
    "Network",
    "Obligations",
    "Per",
    "Policy",
    "PolicyTest",
    "Rate",
    "Route",
    "Step",
    "Taken",
    "TestResult",
    "ToolRule",
    "Tried",
    "answer_headers",
    "canonicalise",
    "decide",
    "decide_tool",
    "explain",
    "filter_request_headers",
    "filter_response_headers",
    "landing",
    "load_policy",
    "outcome",
    "parse_network",
    "parse_policy",
    "private_caching",
    "run_tests",
    "take",
    "visible",
    "without",
]
