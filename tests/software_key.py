"""A security key in software: it signs the challenges of a site as a browser would pass them on (WebAuthn level 2)."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from webauthn.helpers import bytes_to_base64url

PRESENT = 0x01
ATTESTED = 0x40


class SoftwareKey:
    """A key for the site `site`, whose pages are of `origin`."""

    def __init__(self, site: str, origin: str) -> None:
        self._site = hashlib.sha256(site.encode()).digest()
        self._origin = origin
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._raw_id = secrets.token_bytes(16)
        self._count = 0
        self.id = bytes_to_base64url(self._raw_id)

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        """The credential for `navigator.credentials.create` (6.5.4, with no attestation)."""
        public = self._key.public_key().public_numbers()
        x, y = public.x.to_bytes(32, "big"), public.y.to_bytes(32, "big")
        cose = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: x, -3: y})
        attested = bytes(16) + len(self._raw_id).to_bytes(2, "big") + self._raw_id + cose
        data = self._authenticator_data(PRESENT | ATTESTED) + attested
        attestation = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        said = {"clientDataJSON": self._client_data("webauthn.create", options), "attestationObject": attestation}
        return self._shown(said)

    def get(self, options: dict[str, Any]) -> dict[str, Any]:
        """The assertion for `navigator.credentials.get` (6.3.3)."""
        data, client = self._authenticator_data(PRESENT), self._client_data("webauthn.get", options)
        signature = self._key.sign(data + hashlib.sha256(client).digest(), ec.ECDSA(SHA256()))
        return self._shown({"clientDataJSON": client, "authenticatorData": data, "signature": signature})

    def _authenticator_data(self, flags: int) -> bytes:
        self._count += 1
        return self._site + bytes([flags]) + self._count.to_bytes(4, "big")

    def _client_data(self, kind: str, options: dict[str, Any]) -> bytes:
        said = {"type": kind, "challenge": options["challenge"], "origin": self._origin, "crossOrigin": False}
        return json.dumps(said).encode()

    def _shown(self, response: dict[str, bytes]) -> dict[str, Any]:
        told = {name: bytes_to_base64url(value) for name, value in response.items()}
        return {"id": self.id, "rawId": self.id, "type": "public-key", "response": told}
