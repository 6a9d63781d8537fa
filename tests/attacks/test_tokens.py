"""Every case of a broken or hostile token endpoint: no token is accepted, and no secret or word of it disclosed."""

from __future__ import annotations

from typing import Any

from gateway.credentials import Client, ClientCredentials, OAuth, Server, client_credentials
from gateway.errors import Reason, Refusal
from gateway.model import Outbound, Response, Secret
from gateway.policy import Network
from tests.attacks.corpus import family
from tests.leaks.marks import MARK

SECRET = f"the-client-secret-{MARK}"
ISSUER = "https://issuer.test"


def test_only_a_right_answer_gives_a_token() -> None:
    """After any other answer, the secret has gone to the issuer alone and the refusal repeats nothing of the answer."""
    wrong = []
    for case in family("tokens"):
        outcome, requests, told = driven(case)
        if outcome != case["expect"]:
            wrong.append(f"{case['id']} ({case['why']}): {outcome}: {told}")
        if any(not request.url.startswith(f"{ISSUER}/") for request in requests):
            wrong.append(f"{case['id']}: asked {[request.url for request in requests]}")
        if SECRET in told or "EVIL" in told or "access_token" in told.replace("no access_token", ""):
            wrong.append(f"{case['id']}: the refusal repeats what it should not: {told}")
    assert not wrong, "\n".join(wrong)


def driven(case: dict[str, Any]) -> tuple[str, list[Outbound], str]:
    """The outcome of the flow, its requests, and the text for its caller."""
    endpoint = None if "metadata" in case else f"{ISSUER}/token"
    server = Server(ISSUER, Network(public=True), endpoint)
    spec = OAuth("shop", ClientCredentials(), server, Client("client", Secret(SECRET)))
    flow = client_credentials(spec, 0.0)
    requests: list[Outbound] = []
    try:
        requests.append(next(flow))
        while True:
            status, media_type, body = case["metadata" if requests[-1].method == "GET" else "answer"]
            answer = Response(status, (("content-type", media_type),), body.encode("utf-8", "surrogatepass"))
            requests.append(flow.send(answer))
    except StopIteration as end:
        return "token", requests, repr(end.value)
    except Refusal as refusal:
        assert refusal.reason is Reason.CREDENTIAL_FAILED  # noqa: PT017  the outcome is what is tested
        return "refused", requests, refusal.detail
