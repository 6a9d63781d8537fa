"""The client of a request: each trusted proxy vouches for the hop before it."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from gateway.callers.methods import ClientHeader
from gateway.callers.proxies import address_of, client_of, is_here, within

TRUSTED = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"), ip_network("127.0.0.0/8"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "listed", "client"),
    [
        ("203.0.113.1", [], ["127.0.0.1"], "203.0.113.1"),
        ("203.0.113.1", ["for=127.0.0.1"], [], "203.0.113.1"),
        ("10.0.0.1", [], [], "10.0.0.1"),
        ("10.0.0.1", [], ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", [], ["127.0.0.1, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", [], ["127.0.0.1", "198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        ("10.0.0.1", [], ["10.0.0.3, 10.0.0.2"], None),
        ("10.0.0.1", [], ["unknown"], None),
        ("10.0.0.1", [], ["198.51.100.7, evil"], None),
        ("10.0.0.1", [], ["198.51.100.7:5000"], "198.51.100.7"),
        ("10.0.0.1", ['for="[2001:db8::7]:4711"'], [], "2001:db8::7"),
        ("10.0.0.1", ["for=192.0.2.60;proto=http;by=203.0.113.43"], [], "192.0.2.60"),
        ("10.0.0.1", ["for=127.0.0.1, for=198.51.100.17"], ["127.0.0.1"], "198.51.100.17"),
        ("10.0.0.1", ["for=_hidden"], [], None),
        ("10.0.0.1", ['for="unknown, for=127.0.0.1"'], [], None),
        ("10.0.0.1", [], [", ".join(["10.0.0.9"] * 1000)], None),
        ("10.0.0.1", ["for=203.0.113.9"], ["198.51.100.7"], None),
        ("10.0.0.1", ["for=203.0.113.9"], ["203.0.113.9, 198.51.100.7"], None),
        ("10.0.0.1", ["for=198.51.100.7"], ["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["for=_hidden"], ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["for=10.0.0.2"], ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", ["proto=https"], ["198.51.100.7"], "198.51.100.7"),
        ("::ffff:10.0.0.1", [], ["198.51.100.7"], "198.51.100.7"),
        ("10.0.0.1", [], ["::ffff:127.0.0.1"], None),
    ],
)
def test_the_client_is_the_last_that_no_trusted_proxy_has(
    peer: str, forwarded: list[str], listed: list[str], client: str | None
) -> None:
    """Entries of the client itself come before it, or in the field that its proxy does not write, and are ignored."""
    found = client_of(address_of(peer), forwarded, listed, TRUSTED)
    assert found == (ip_address(client) if client is not None else None)


@pytest.mark.parametrize(
    ("header", "forwarded", "listed", "client"),
    [
        ("forwarded", ["for=198.51.100.7"], ["203.0.113.9"], "198.51.100.7"),
        ("forwarded", [], ["203.0.113.9"], "10.0.0.1"),
        ("forwarded", ["for=_hidden"], ["203.0.113.9"], None),
        ("x-forwarded-for", ["for=203.0.113.9"], ["198.51.100.7"], "198.51.100.7"),
        ("x-forwarded-for", ["for=203.0.113.9"], [], "10.0.0.1"),
        ("x-forwarded-for", ["for=203.0.113.9"], ["unknown"], None),
    ],
)
def test_only_the_header_that_the_proxies_write_names_the_client(
    header: str, forwarded: list[str], listed: list[str], client: str | None
) -> None:
    """The other one is the client's own; without either, the client is the proxy."""
    found = client_of(address_of("10.0.0.1"), forwarded, listed, TRUSTED, ClientHeader(header))
    assert found == (ip_address(client) if client is not None else None)


def test_what_is_no_address_is_in_no_block() -> None:
    """A socket without an address, a name, or an address with a port is in no network."""
    for text in (None, "", "localhost", "10.0.0.1:80", "[::1]"):
        assert not within(address_of(text), (ip_network("0.0.0.0/0"), ip_network("::/0")))


@pytest.mark.parametrize(
    ("remote", "forwarded", "listed", "here"),
    [
        ("127.0.0.1", [], [], True),
        ("", [], [], True),
        ("::1", [], ["127.0.0.1"], True),
        ("127.0.0.1", ["for=127.0.0.1"], ["203.0.113.5"], False),
        ("127.0.0.1", ["for=203.0.113.5"], ["127.0.0.1"], False),
        ("127.0.0.1", [], ["127.0.0.1, 203.0.113.5"], False),
        ("127.0.0.1", [], ["203.0.113.5, 127.0.0.1"], False),
        ("127.0.0.1", ["proto=https"], [], False),
        ("127.0.0.1", ["for=_hidden"], [], False),
        ("", [], ["203.0.113.5"], False),
        ("10.0.0.1", [], ["127.0.0.1"], False),
    ],
)
def test_here_is_who_nobody_places_elsewhere(remote: str, forwarded: list[str], listed: list[str], here: bool) -> None:
    """A client may write one of the fields itself, if its proxy writes the other."""
    assert is_here(remote, forwarded, listed) is here
