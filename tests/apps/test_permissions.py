"""A page requests of the browser only permissions that it uses and that are allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.apps import PERMISSIONS, pack
from gateway.config.load import PERMISSIONS as KNOWN
from tests.apps.packing import write

PAGE = "<script>navigator.clipboard?.writeText('a'); navigator.geolocation.getCurrentPosition(show)</script>"


@pytest.mark.parametrize(
    ("allowed", "granted", "noted"),
    [
        ((), None, ["it asks for geolocation, clipboard-write, which the app's `permissions` do not name"]),
        (("clipboard-write", "camera"), {"clipboardWrite": {}}, ["it asks for geolocation, which"]),
        (("geolocation", "clipboard-write"), {"geolocation": {}, "clipboardWrite": {}}, []),
    ],
)
def test_permissions_are_used_and_allowed(
    tmp_path: Path, allowed: tuple[str, ...], granted: object, noted: list[str]
) -> None:
    """The code of the runtime does not count; a missing permission is noted."""
    runtime = "navigator.mediaDevices.getUserMedia()"
    folder = write(tmp_path, index__html=PAGE)
    resource = pack(folder, app="cart", title="Cart", runtime=runtime, permissions=allowed)
    assert resource.meta.get("permissions") == granted
    assert len(resource.notes) == 1 + len(noted)
    assert all(text.startswith(start) for text, start in zip(resource.notes[1:], noted, strict=True))


def test_the_configuration_knows_the_same_names() -> None:
    """The configuration accepts exactly the same names."""
    assert set(PERMISSIONS) == set(KNOWN)
