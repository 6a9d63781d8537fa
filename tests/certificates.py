"""Certificates for tests: signed by themselves, or by an authority of the tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def self_signed(*sites: str) -> tuple[bytes, bytes]:
    """A certificate of these names, and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, sites[0])])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(site) for site in sites]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return signed.public_bytes(Encoding.PEM), private


class Authority:
    """A certificate authority, whose certificates are for servers and clients."""

    def __init__(self, name: str = "nodes of a test") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        begin = datetime.now(UTC) - timedelta(days=2)
        builder = _builder(self._name, self._name, self._key.public_key(), begin, begin + timedelta(days=9))
        self._certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
            self._key, hashes.SHA256()
        )

    def write(self, folder: Path, *sites: str, expired: bool = False) -> None:
        """Write authority.pem, and certificate.pem and key.pem for these names or addresses, valid for a day."""
        folder.mkdir(exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, sites[0])])
        begin = datetime.now(UTC) - timedelta(hours=25 if expired else 1)
        builder = _builder(subject, self._name, key.public_key(), begin, begin + timedelta(hours=24))
        names = x509.SubjectAlternativeName([_general_name(site) for site in sites])
        signed = builder.add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / "authority.pem").write_bytes(self._certificate.public_bytes(Encoding.PEM))
        (folder / "certificate.pem").write_bytes(signed.public_bytes(Encoding.PEM))
        (folder / "key.pem").write_bytes(private)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)


def _general_name(site: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(site))
    except ValueError:
        return x509.DNSName(site)
