"""The addresses that a backend may have."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import PUBLIC, Network, parse_network

PRIVATE = parse_network(["private"])

ADDRESSES = [  # address, public, private
    ("93.184.216.34", True, False),
    ("2606:2800:220:1:248:1893:25c8:1946", True, False),
    ("10.1.2.3", False, True),
    ("172.31.255.255", False, True),
    ("192.168.1.1", False, True),
    ("127.0.0.1", False, True),
    ("127.9.9.9", False, True),
    ("100.64.0.1", False, True),
    ("::1", False, True),
    ("fd12:3456::1", False, True),
    ("169.254.169.254", False, False),
    ("169.254.0.1", False, False),
    ("fe80::1", False, False),
    ("fe80::1%eth0", False, False),
    ("fd00:ec2::254", False, False),
    ("100.100.100.200", False, False),
    ("168.63.129.16", False, False),
    ("192.0.0.192", False, False),
    ("0.0.0.0", False, False),
    ("::", False, False),
    ("255.255.255.255", False, False),
    ("224.0.0.1", False, False),
    ("ff02::1", False, False),
    ("192.0.2.1", False, False),
    ("198.18.0.1", False, False),
    ("2001:db8::1", False, False),
    ("2001:0:4136:e378:8000:63bf:3fff:fdd2", False, False),
    ("::ffff:93.184.216.34", True, False),
    ("::ffff:127.0.0.1", False, True),
    ("::ffff:169.254.169.254", False, False),
    ("64:ff9b::10.0.0.1", False, True),
    ("64:ff9b::169.254.169.254", False, False),
    ("64:ff9b::8.8.8.8", False, False),
    ("64:ff9b:1::10.0.0.1", False, False),
    ("2002:a00:1::1", False, True),
    ("2002:a9fe:a9fe::1", False, False),
    ("2002:808:808::1", False, False),
    ("::7f00:1", False, False),
    ("0x7f000001", False, False),
    ("0177.0.0.1", False, False),
    ("2130706433", False, False),
    ("127.1", False, False),
    ("127.0.0.1.", False, False),
    ("localhost", False, False),
    ("", False, False),
]


@pytest.mark.parametrize(("ip", "public", "private"), ADDRESSES)
def test_public_and_private(ip: str, public: bool, private: bool) -> None:
    """`public` allows public addresses only, `private` private ones only; neither allows link-local or metadata."""
    assert (PUBLIC.allows(ip), PRIVATE.allows(ip)) == (public, private)


BLOCKS = [
    (["10.0.0.0/8"], "10.9.9.9", True),
    (["10.0.0.0/8"], "11.0.0.1", False),
    (["10.0.0.0/8"], "::ffff:10.0.0.1", True),
    (["10.1.2.3"], "10.1.2.3", True),
    (["169.254.0.0/16"], "169.254.169.254", False),
    (["0.0.0.0/0", "::/0"], "169.254.169.254", False),
    (["0.0.0.0/0", "::/0"], "fe80::1", False),
    (["0.0.0.0/0"], "0.0.0.0", False),
    (["169.254.169.254/32"], "169.254.169.254", True),
    (["169.254.169.254/32"], "::ffff:169.254.169.254", True),
    (["fe80::1/128"], "fe80::1%2", True),
    (["64:ff9b::/96"], "64:ff9b::10.0.0.1", False),
    (["64:ff9b::/96", "public"], "64:ff9b::8.8.8.8", True),
    (["64:ff9b::/96", "public"], "64:ff9b::10.0.0.1", False),
    (["10.0.0.0/8"], "64:ff9b::10.0.0.1", True),
    (["public", "10.0.0.0/8"], "8.8.8.8", True),
]


@pytest.mark.parametrize(("words", "ip", "allowed"), BLOCKS)
def test_blocks(words: list[str], ip: str, allowed: bool) -> None:
    """A block allows its addresses; link-local and metadata addresses must be listed exactly."""
    assert parse_network(words).allows(ip) is allowed


@pytest.mark.parametrize("word", ["everything", "10.0.0.1/8", "300.0.0.0/8", "::ffff:10.0.0.0/104", "localhost", ""])
def test_wrong_blocks(word: str) -> None:
    """An invalid block is refused with an example."""
    with pytest.raises(ValueError):
        parse_network([word])


def test_nothing_is_allowed_by_default() -> None:
    """An empty network allows nothing."""
    assert not Network().allows("8.8.8.8")


@given(st.ip_addresses(v=4))
def test_mapped_addresses_are_the_inner_ones(address: ipaddress.IPv4Address) -> None:
    """An IPv4-mapped address is judged as the IPv4 address in it."""
    mapped = f"::ffff:{address}"
    assert PUBLIC.allows(mapped) is PUBLIC.allows(str(address))
    assert PRIVATE.allows(mapped) is PRIVATE.allows(str(address))


@given(st.ip_addresses() | st.text(max_size=20))
def test_public_never_allows_what_python_calls_private(address: object) -> None:
    """Our list of public addresses is a subset of the standard library's."""
    if PUBLIC.allows(str(address)):
        assert ipaddress.ip_address(str(address)).is_global
