"""The table of hosts in the docs, made of what the gateway knows of them."""

from __future__ import annotations

import re

from gateway.apps.advice import HOSTS as ADVISED
from gateway.apps.advice import OWN
from gateway.cli.connect import HOSTS as CONNECTED
from scripts.hosts_doc import HOSTS, PAGE, page


def test_the_table_is_made_of_the_data() -> None:
    """Run scripts/hosts_doc.py after a change."""
    text = PAGE.read_text("utf-8")
    assert text == page(text)


def test_every_host_is_known_with_a_source() -> None:
    """Those that can be connected, and those of which `doctor` speaks; each fact has a month."""
    named = {host.connect for host in HOSTS if host.connect is not None}
    assert named == set(CONNECTED)
    assert all(any(host.title.startswith(one) for host in HOSTS) for one in ADVISED if one != OWN)
    assert all(host.sources for host in HOSTS)
    assert all(re.fullmatch(r"20\d\d-\d\d", one.date) for host in HOSTS for one in host.sources)
