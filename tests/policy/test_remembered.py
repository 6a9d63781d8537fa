"""The cached canonical form of a request belongs to this very request under this very policy."""

from dataclasses import replace

import pytest
from msgspec import structs

from gateway.errors import Refusal
from gateway.model import BodyType, CanonicalRequest, Redirect, Request
from gateway.policy import Policy, canonicalise, parse_policy
from gateway.policy.canonical import FEW, REMEMBERED, SHORT

ASKED = Request("GET", "/api/a?b=1", (("accept", "text/plain"),))


def policy(*backends: str) -> Policy:
    """Return a policy with these backends."""
    listed = "".join(f"  {name}: {{url: http://{name}.test}}\n" for name in backends)
    route = f"{{path: /api/**, methods: [GET, HEAD, POST], backend: {backends[0]}}}"
    return parse_policy(f"version: 1\nbackends:\n{listed}routes: [{route}]\n", "p.yaml")


def anew(policy: Policy, request: Request, backend: str | None = None) -> CanonicalRequest:
    """Return the form without the cache."""
    policy.forms.clear()
    return canonicalise(policy, request, backend)


@pytest.mark.parametrize(
    "other",
    [
        structs.replace(ASKED, method="HEAD"),
        structs.replace(ASKED, url="/api/a?b=2"),
        structs.replace(ASKED, headers=(("accept", "text/html"),)),
        structs.replace(ASKED, headers=()),
        structs.replace(ASKED, redirect=Redirect.MANUAL),
        structs.replace(ASKED, timeout=1.0),
        structs.replace(ASKED, method="POST", body=b"x"),
        structs.replace(ASKED, method="POST", body_type=BodyType.TEXT),
    ],
)
def test_another_request_has_its_own_form(other: Request) -> None:
    """Whichever part differs."""
    rules = policy("one")
    assert canonicalise(rules, ASKED) is canonicalise(rules, structs.replace(ASKED))
    assert canonicalise(rules, other) == anew(policy("one"), other) != canonicalise(rules, ASKED)


def test_another_backend_has_its_own_form() -> None:
    """As after a redirect, and under another policy."""
    rules = policy("one", "two")
    found = [canonicalise(rules, ASKED, backend).backend for backend in ("one", "two", "one", None)]
    assert found == ["one", "two", "one", "one"]
    assert canonicalise(policy("two"), ASKED).backend == "two"
    assert replace(rules, only_backend="one").forms == {}


def test_what_is_refused_is_refused_again() -> None:
    """A refusal is not cached."""
    rules = policy("one")
    for _ in range(2):
        with pytest.raises(Refusal, match="segment"):
            canonicalise(rules, Request("GET", "/api/%2e%2e%2fadmin"))
    assert rules.forms == {}


def test_memory_has_an_end() -> None:
    """Bounded in number and size."""
    rules = policy("one")
    for number in range(2 * REMEMBERED):
        canonicalise(rules, Request("GET", f"/api/{number}"))
        assert len(rules.forms) <= REMEMBERED
    rules.forms.clear()
    canonicalise(rules, Request("GET", "/api/" + "a" * SHORT))
    canonicalise(rules, Request("GET", "/api/a", tuple((f"x-{number}", "1") for number in range(FEW + 1))))
    canonicalise(rules, Request("POST", "/api/a", body=b"x"))
    assert rules.forms == {}
