"""The gateway's authentication at a real authorization server: a certificate, and single-use assertions."""

from __future__ import annotations

import base64
import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from joserfc.jwk import ECKey

from gateway.backends.connect import Connections, tls_context
from gateway.backends.http import HttpBackend
from gateway.credentials import (
    Certificate,
    Client,
    ClientAuthentication,
    ClientCredentials,
    OAuth,
    Server,
    client_credentials,
    signing_key,
)
from gateway.errors import Refusal, StartError
from gateway.exchange.oauth_tokens import run_flow
from gateway.model import Outbound, Response, Secret
from tests.credentials.house import KEY, PUBLIC
from tests.credentials.test_client_credentials import Everywhere
from tests.oidc.provider import oidc_provider
from tests.resource import resource
from tests.world import running

SERVICE = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}


class Remembering:
    """A backend that keeps the requests sent through it."""

    def __init__(self, backend: HttpBackend) -> None:
        self.backend = backend
        self.sent: list[Outbound] = []

    async def send(self, request: Outbound) -> Response:
        self.sent.append(request)
        return await self.backend.send(request)

    async def close(self) -> None:
        """Do nothing: no resources are held."""


async def test_an_assertion_is_good_once() -> None:
    """An intercepted assertion is worthless: the server accepts it once, and we never send it twice."""
    client = {
        "client_id": "signing",
        "token_endpoint_auth_method": "private_key_jwt",
        "token_endpoint_auth_signing_alg": "ES256",
        "jwks": {"keys": [PUBLIC]},
        **SERVICE,
    }
    async with oidc_provider([client]) as provider, Connections() as connections:
        ours = Client("signing", None, ClientAuthentication.PRIVATE_KEY_JWT, signing_key(Secret(KEY)))
        spec = OAuth("shop", ClientCredentials(), Server(provider.issuer, Everywhere()), ours)
        way = Remembering(HttpBackend(spec, connections))
        for _ in range(2):
            await run_flow(client_credentials(spec, _now()), way)
        replayed = await way.backend.send(way.sent[-1])
        assert replayed.status in (400, 401)
        assert b"invalid_client" in replayed.body
        assert "used once" in str(await provider.events())


async def test_a_clock_that_goes_wrong_is_named() -> None:
    """The assertion has expired by the server's correct clock."""
    client = {
        "client_id": "signing",
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": {"keys": [PUBLIC]},
        **SERVICE,
    }
    async with oidc_provider([client]) as provider, Connections() as connections:
        ours = Client("signing", None, ClientAuthentication.PRIVATE_KEY_JWT, signing_key(Secret(KEY)))
        spec = OAuth("shop", ClientCredentials(), Server(provider.issuer, Everywhere()), ours)
        with pytest.raises(Refusal, match=r"invalid_client \(its clock is \d+ s ahead\)"):
            await run_flow(client_credentials(spec, _now() - 3600), HttpBackend(spec, connections))


async def test_a_client_certificate(tmp_path: Path) -> None:
    """The server knows its subject, and its CA is trusted for it alone; without a certificate there is no token."""
    authority, server, ours = Authority(), _key(), _key()
    ca, chain, key = tmp_path / "ca.pem", tmp_path / "client.pem", tmp_path / "client.key"
    ca.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    chain.write_bytes(authority.issue("gateway", ours))
    key.write_bytes(_pem(ours))
    tls = {
        "key": _pem(server).decode(),
        "cert": authority.issue("localhost", server).decode(),
        "ca": ca.read_text(),
    }
    client = {
        "client_id": "certified",
        "token_endpoint_auth_method": "tls_client_auth",
        "tls_client_auth_subject_dn": "CN=gateway",
        **SERVICE,
    }
    async with oidc_provider([client], tls=tls) as provider, Connections() as connections:
        place = Server(provider.issuer, Everywhere(), certificate=Certificate(chain, key), authorities=ca)
        spec = OAuth("shop", ClientCredentials(), place, Client("certified", None, ClientAuthentication.TLS))
        shown = HttpBackend(spec, connections, tls_context(ca, chain, key))
        token = await run_flow(client_credentials(spec, _now()), shown)
        assert token.token_type == "Bearer"
        with pytest.raises(Refusal, match="invalid_client"):
            await run_flow(
                client_credentials(spec, _now()), HttpBackend(spec, connections, tls_context(ca, None, None))
            )
        with pytest.raises(Refusal, match="no TLS connection"):
            await run_flow(client_credentials(replace(spec), _now()), HttpBackend(spec, connections))


async def test_a_certificate_through_a_whole_gateway(tmp_path: Path) -> None:
    """Three files in gateway.yaml, with either method for certificates; the token reaches the backend."""
    authority, server, ours = Authority(), _key(), _key()
    chain = authority.issue("gateway", ours)
    for name, data in (("ca", authority.pem), ("client", chain), ("client.key", _pem(ours))):
        (tmp_path / f"{name}.pem").write_bytes(data)
    tls = {
        "key": _pem(server).decode(),
        "cert": authority.issue("localhost", server).decode(),
        "ca": authority.pem.decode(),
    }
    jwk = {**ECKey.import_key(_pem(ours)).as_dict(private=False), "x5c": [_der(chain)]}
    clients: list[dict[str, Any]] = [
        {
            "client_id": "certified",
            "token_endpoint_auth_method": "tls_client_auth",
            "tls_client_auth_subject_dn": "CN=gateway",
            **SERVICE,
        },
        {
            "client_id": "own",
            "token_endpoint_auth_method": "self_signed_tls_client_auth",
            "jwks": {"keys": [jwk]},
            **SERVICE,
        },
    ]
    async with oidc_provider(clients, tls=tls) as provider, resource() as behind:
        common = f'issuer: "{provider.issuer}", network: private, authorities: ca.pem'
        files = "certificate: client.pem, certificate_key: client.key.pem"
        credentials = (
            f"  certified: {{type: client_credentials, client_id: certified, {files}, {common}}}\n"
            f"  own: {{type: client_credentials, client_id: own, {files}, {common}, "
            "client_auth: self_signed_tls_client_auth}\n"
            f"  bare: {{type: client_credentials, client_id: own, client_auth: none, {common}}}\n"
        )
        names = ("certified", "own", "bare")
        backends = "".join(f'  {one}: {{url: "{behind.url}", network: private, credential: {one}}}\n' for one in names)
        routes = "".join(f"  - {{path: /{one}, methods: [GET], backend: {one}}}\n" for one in names)
        policy = f"version: 1\nbackends:\n{backends}routes:\n{routes}"
        async with running(tmp_path, policy=policy, credentials=credentials) as world, world.client() as browser:
            headers = {"origin": world.site, "sec-fetch-site": "same-origin"}
            statuses = []
            for one in names:
                async with browser.get(f"{world.site}/{one}", headers=headers) as got:
                    statuses.append((got.status, got.headers.get("gateway-reason")))
    assert statuses == [(200, None), (200, None), (502, "credential-failed")]
    assert [fields["authorization"].split(" ")[0] for fields in behind.seen] == ["Bearer", "Bearer"]


@pytest.mark.parametrize("text", ["", "no certificate"])
def test_files_that_are_no_certificates_stop_the_start(tmp_path: Path, text: str) -> None:
    """The message names them."""
    file = tmp_path / "client.pem"
    file.write_text(text)
    with pytest.raises(StartError, match=r"client\.pem"):
        tls_context(None, file, file)


def _now() -> float:
    return datetime.datetime.now(datetime.UTC).timestamp()


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _der(pem: bytes) -> str:
    return base64.b64encode(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)).decode()


_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class Authority:
    """A certificate authority for tests."""

    def __init__(self) -> None:
        self._key = _key()
        self.certificate = self._made("authority", self._key.public_key(), "authority", authority=True)

    @property
    def pem(self) -> bytes:
        """Its own certificate, in PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(self, name: str, key: ec.EllipticCurvePrivateKey) -> bytes:
        """A certificate for `name`, in PEM."""
        return self._made(name, key.public_key(), "authority", authority=False).public_bytes(Encoding.PEM)

    def _made(self, name: str, key: Any, issuer: str, *, authority: bool) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        public = self._key.public_key()
        uses = dict.fromkeys(_USES, False) | {"key_cert_sign": authority, "digital_signature": not authority}
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**uses), critical=True)  # Python 3.13 and later ask an authority for it
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )
