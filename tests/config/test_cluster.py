"""The section `cluster` of gateway.yaml: addresses, keys, TLS, and what it needs of the other sections."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import ClusterSettings, load_config
from gateway.errors import DocumentError

KEY = "rW0nXoJ1m4Qk2cVvYb7tLh9sDfGzEaKx3pUyTi6RjBM="
OLD = "w3LhTz8yVfQpXn5kRb2mJs7dGcEa9uKx1oWiYt4HjNA="
ENVIRON = {"URL": "postgresql://u@127.0.0.1/db", "NEW": KEY, "OLD": OLD, "SHORT": "c2hvcnQ="}
UNIX = "listen: 'unix:node.sock', keys: ['${env:NEW}', '${env:OLD}']"


def read(folder: Path, cluster: str, stores: str = "{database: '${env:URL}'}") -> ClusterSettings | None:
    """Load a configuration with these sections."""
    (folder / "index.html").write_text("<title>a</title>")
    (folder / "policy.yaml").write_text("version: 1\n")
    file = folder / "gateway.yaml"
    file.write_text(
        f"apps: {{page: {{source: index.html, policy: policy.yaml}}}}\nstores: {stores}\ncluster: {{{cluster}}}\n"
    )
    return load_config(file, ENVIRON).cluster


def problems(folder: Path, cluster: str, stores: str = "{database: '${env:URL}'}") -> str:
    """Return the problems of such a configuration, as text."""
    with pytest.raises(DocumentError) as raised:
        read(folder, cluster, stores)
    return str(raised.value)


def test_unix_socket(tmp_path: Path) -> None:
    """A Unix socket is below the state folder, and the address for others is the same."""
    cluster = read(tmp_path, f"{UNIX}, name: one")
    assert cluster is not None
    assert (cluster.name, str(cluster.listen)) == ("one", f"unix:{tmp_path}/node.sock")
    assert (cluster.address, cluster.keys.reveal()) == (cluster.listen, f"{KEY} {OLD}")


def test_machine_address_needs_tls(tmp_path: Path) -> None:
    """Connections between machines are refused without certificates."""
    assert "need mutual TLS" in problems(tmp_path, "listen: '10.0.0.1:7946', keys: ['${env:NEW}']")


def test_machine_address(tmp_path: Path) -> None:
    """With TLS, a node may listen on all addresses and name another one."""
    for name in ("a.pem", "b.pem", "c.pem"):
        (tmp_path / name).write_text("x")
    tls = "tls: {certificate: a.pem, key: b.pem, authority: c.pem}"
    keys = "keys: ['${env:NEW}']"
    cluster = read(tmp_path, f"listen: '0.0.0.0:7946', address: 'node-1.internal:7946', {keys}, {tls}")
    assert cluster is not None
    assert str(cluster.address) == "node-1.internal:7946"
    assert "every address" in problems(tmp_path, f"listen: '0.0.0.0:7946', {keys}, {tls}")
    cluster = read(tmp_path, f"name: node-2, listen: '0.0.0.0:7946', address: '{{name}}.nodes:7946', {keys}, {tls}")
    assert cluster is not None
    assert str(cluster.address) == "node-2.nodes:7946"


@pytest.mark.parametrize(
    ("cluster", "word"),
    [
        ("keys: ['${env:NEW}'], address: 'unix:a'", "listen, which is missing"),
        ("listen: 'unix:a'", '"keys" is missing'),
        ("listen: 'unix:a', keys: []", "at least one key"),
        ("listen: 'unix:a', keys: ['${env:SHORT}']", "32 random bytes"),
        ("listen: 'unix:a', keys: ['${env:NONE}']", "NONE is not set"),
        ("listen: 'nowhere', keys: ['${env:NEW}']", "an address and a port"),
        (f"listen: 'unix:{'a' * 200}', keys: ['${{env:NEW}}']", "too long"),
        (f"{UNIX}, name: 'a b'", "the name"),
        (f"{UNIX}, address: '10.0.0.1:7946'", "Unix socket"),
        (f"{UNIX}, tls: {{certificate: a, key: b, authority: c}}", "a Unix socket has none"),
    ],
)  # fmt: skip
def test_problems(tmp_path: Path, cluster: str, word: str) -> None:
    """Each mistake is named with its remedy."""
    assert word in problems(tmp_path, cluster)


def test_workers_need_keys_alone(tmp_path: Path) -> None:
    """Their supervisor gives them addresses."""
    cluster = read(tmp_path, "keys: ['${env:NEW}']")
    assert cluster is not None
    assert (cluster.listen, cluster.keys.reveal()) == (None, KEY)


def test_sqlite_is_for_one(tmp_path: Path) -> None:
    """Several processes cannot share an SQLite file."""
    assert "SQLite is for one process" in problems(tmp_path, UNIX, "{}")


def test_keys_are_not_shown(tmp_path: Path) -> None:
    """The representation of the settings does not contain a key."""
    assert KEY not in repr(read(tmp_path, UNIX))
