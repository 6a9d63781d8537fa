"""The test vectors shared by both implementations of the bridge, run with the Python one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import MuxError
from gateway.mux import ClientConnection, Connection, ErrorFrame, ServerConnection, decode, encode

DOCUMENT = json.loads((Path(__file__).parent / "vectors.json").read_text())


@pytest.mark.parametrize("vector", DOCUMENT["vectors"], ids=lambda vector: f"{vector['role']}: {vector['name']}")
def test_vector(vector: dict[str, Any]) -> None:
    """Each step gives the events, the output or the error that both languages agreed on."""
    connection = ServerConnection() if vector["role"] == "gateway" else ClientConnection()
    for step in [*DOCUMENT["starts"].get(vector.get("start"), []), *vector["steps"]]:
        for number in range(step.get("times", 1)):
            run(connection, expand(step, number), vector["role"])


def run(connection: Connection, step: dict[str, Any], role: str) -> None:
    """Run one step, and compare it with what it should give."""
    if "dropped" in step:
        assert connection.dropped == step["dropped"]
    elif "error" in step:
        check_error(connection, step, role)
    else:
        events = act(connection, step)
        assert [json.loads(encode(event)) for event in events] == step["events"]
        assert [json.loads(text) for text in connection.pending_output()] == step.get("output", [])


def check_error(connection: Connection, step: dict[str, Any], role: str) -> None:
    """Check that the step fails with its code; a gateway reports garbage to its peer before it closes."""
    ended = connection.ended
    with pytest.raises(MuxError) as caught:
        act(connection, step)
    assert caught.value.code == step["error"]
    output = [decode(text) for text in connection.pending_output()]
    speaks = role == "gateway" and "send" not in step and not ended
    assert output == ([ErrorFrame(caught.value.code, caught.value.detail)] if speaks else [])


def act(connection: Connection, step: dict[str, Any]) -> Any:
    """Apply the step to the connection."""
    if "lost" in step:
        return connection.connection_lost()
    if "send" in step:
        # A page's garbage is not made of frames that `decode` would return.
        return connection.send(frame_of(step["send"]))
    return connection.receive_data(step["text"] if "text" in step else json.dumps(step["receive"]))


def frame_of(value: dict[str, Any]) -> Any:
    """Return a frame of this end, with its message unparsed."""
    if "message" not in value:
        return decode(json.dumps(value))
    bare = decode(json.dumps({**value, "message": {}}))
    return type(bare)(bare.view, bare.channel, value["message"])  # type: ignore[union-attr, call-arg, arg-type]


def expand(step: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the step with its `$` placeholders filled in."""
    depth = step.get("deep", 0)
    nested = "[" * depth + "]" * depth
    if "text" in step:
        part, times = step.get("many", ["", 0])
        return {**step, "text": step["text"].replace("$many", part * times).replace("$deep", nested)}
    text = json.dumps(step).replace("$n", str(number)).replace("$long", "x" * step.get("long", 0))
    result: dict[str, Any] = json.loads(text.replace('"$deep"', nested))
    return result
