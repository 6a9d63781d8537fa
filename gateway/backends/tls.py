"""TLS contexts with a client certificate, or with additional authorities."""

from __future__ import annotations

import ssl
from pathlib import Path

from gateway.errors import StartError


def tls_context(authorities: Path | None, chain: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return a context that also trusts `authorities`, and sends the certificate in `chain`; None for neither.

    Raises StartError for invalid files.
    """
    if authorities is None and chain is None:
        return None
    context = ssl.create_default_context()
    try:
        if authorities is not None:
            context.load_verify_locations(authorities)
        if chain is not None:
            context.load_cert_chain(chain, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        files = ", ".join(str(file) for file in (authorities, chain, key) if file is not None)
        raise StartError(f"no TLS certificate and key in PEM, without a password, can be read of {files}") from error
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")
