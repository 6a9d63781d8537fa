"""The vectors that hold the two implementations of the bridge together, run by the one in Python."""

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
            run(connection, expanded(step, number), vector["role"])


def run(connection: Connection, step: dict[str, Any], role: str) -> None:
    """One step, held against what it should give."""
    if "dropped" in step:
        assert connection.dropped == step["dropped"]
    elif "error" in step:
        check_error(connection, step, role)
    else:
        events = act(connection, step)
        assert [json.loads(encode(event)) for event in events] == step["events"]
        assert [json.loads(text) for text in connection.pending_output()] == step.get("output", [])


def check_error(connection: Connection, step: dict[str, Any], role: str) -> None:
    """The step must fail with the code it names; a gateway that was told garbage says so before it hangs up."""
    ended = connection.ended
    with pytest.raises(MuxError) as caught:
        act(connection, step)
    assert caught.value.code == step["error"]
    output = [decode(text) for text in connection.pending_output()]
    speaks = role == "gateway" and "send" not in step and not ended
    assert output == ([ErrorFrame(caught.value.code, caught.value.detail)] if speaks else [])


def act(connection: Connection, step: dict[str, Any]) -> Any:
    """Hand the step to the connection."""
    if "lost" in step:
        return connection.connection_lost()
    if "send" in step:
        # The frames of a page's garbage are no frames that `decode` would give.
        return connection.send(frame_of(step["send"]))
    return connection.receive_data(step["text"] if "text" in step else json.dumps(step["receive"]))


def frame_of(value: dict[str, Any]) -> Any:
    """A frame of this end, its message unread."""
    if "message" not in value:
        return decode(json.dumps(value))
    bare = decode(json.dumps({**value, "message": {}}))
    return type(bare)(bare.view, bare.channel, value["message"])  # type: ignore[union-attr, call-arg, arg-type]


def expanded(step: dict[str, Any], number: int) -> dict[str, Any]:
    """The step with its `$` places filled in."""
    depth = step.get("deep", 0)
    nested = "[" * depth + "]" * depth
    if "text" in step:
        part, times = step.get("many", ["", 0])
        return {**step, "text": step["text"].replace("$many", part * times).replace("$deep", nested)}
    text = json.dumps(step).replace("$n", str(number)).replace("$long", "x" * step.get("long", 0))
    result: dict[str, Any] = json.loads(text.replace('"$deep"', nested))
    return result
