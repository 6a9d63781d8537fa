"""Serialises the principal of a login; its capabilities are computed at each use."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gateway.model import Json, Principal

CLAIMS = 16 * 1024
"""Maximum characters of claims stored with a login; larger claims are omitted."""


def told(principal: Principal) -> dict[str, Json]:
    """Return the stored fields of a principal."""
    claims = json.dumps(dict(principal.claims))
    return {
        "issuer": principal.issuer,
        "client": principal.client,
        "subject": principal.subject,
        "roles": list[Json](sorted(principal.roles)),
        "claims": json.loads(claims) if len(claims) <= CLAIMS else {},
    }


def principal_of(kept: Mapping[str, Json], expires: float, proof: str = "") -> Principal:
    """Return the principal of a login that ends at `expires`, or when `proof` is revoked."""
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
