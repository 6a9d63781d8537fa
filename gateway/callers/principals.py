"""A principal as it is kept with a login, and read again; what it may do is found anew each time."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gateway.model import Json, Principal

CLAIMS = 16 * 1024
"""Characters of claims that are kept with a login; more of them are left out."""


def told(principal: Principal) -> dict[str, Json]:
    """What is kept of a principal."""
    claims = json.dumps(dict(principal.claims))
    return {
        "issuer": principal.issuer,
        "client": principal.client,
        "subject": principal.subject,
        "roles": list[Json](sorted(principal.roles)),
        "claims": json.loads(claims) if len(claims) <= CLAIMS else {},
    }


def principal_of(kept: Mapping[str, Json], expires: float, proof: str = "") -> Principal:
    """The principal of a login that ends at `expires`, or when `proof` does."""
    return Principal(
        issuer=str(kept["issuer"]),
        client=str(kept["client"]),
        subject=str(kept["subject"]),
        roles=_texts(kept["roles"]),
        claims=claims if isinstance(claims := kept["claims"], dict) else {},
        session=True,
        expires=expires,
        proof=proof,
    )


def _texts(value: Json) -> frozenset[str]:
    return frozenset(map(str, value)) if isinstance(value, list) else frozenset()
