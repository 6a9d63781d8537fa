"""The policy of the views' tests, another principal, and the proof of a view's call."""

import base64
import hashlib
import hmac
from dataclasses import replace

from gateway.crypto import base64url
from gateway.model import LOCAL
from gateway.policy import parse_policy
from gateway.views.view import AttachResult

POLICY = parse_policy(
    """
version: 1
backends: {shop: {url: "http://shop.test"}}
routes: [{path: /api, methods: [GET]}]
tools: {add: {}, held: {confirm: always}, noisy: {rate: 1/minute per principal}, closed: {deny: "no"},
        slow: {timeout: 2m}}
""",
    "policy.yaml",
)
EVE = replace(LOCAL, subject="eve")


def proof(attached: AttachResult, number: int) -> str:
    """Return the proof that the view would send along."""
    key = base64.urlsafe_b64decode(attached.key + "=")
    signature = hmac.digest(key, str(number).encode(), hashlib.sha256)
    return f"{attached.view}.{number}.{base64url(signature)}"
