"""Attacks on the listener for other nodes: forged, repeated, redirected, stale and altered requests reach nothing."""

from __future__ import annotations

import dataclasses
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
from msgspec.structs import replace

from gateway.cluster.envelope import HEADER, STREAM, Envelope, ForwardedCaller, body_digest, fields_digest, seal
from gateway.cluster.ids import ObjectIds, ObjectKind
from gateway.cluster.messages import (
    BODIES,
    CALLS,
    DOCUMENTS,
    FORMER,
    MOVED,
    NOT_OWNER,
    OWNER,
    PING,
    TAINTS,
    UPSTREAMS,
    AboutTaint,
    RemoteCall,
    encode_call,
    encode_texts,
    write_about,
)
from gateway.crypto import SigningKeys
from gateway.model import LOCAL, Secret
from gateway.ports.views import TaintGroup
from gateway.stores.nodes import DatabaseNodes
from gateway.stores.sealing import GivenKeys, KeyRing
from gateway.stores.sql import Database
from tests.cluster.cluster import KEY, Page, client, cluster

RING = KeyRing(GivenKeys("cluster.keys", Secret(KEY)))
FORWARD = RING.derive("cluster forwards")
FIELDS = {"host": "node", "content-type": "application/msgpack"}


def call(view: str, proof: str) -> bytes:
    """Return the body of a call that would reach the backend."""
    arguments = f'{{"url": "/api/attack", "_view": "{proof}"}}'.encode()
    assert proof.startswith(view)
    return encode_call(RemoteCall("http_request", arguments, is_app=True, asks=False))


async def incarnation(url: str) -> str:
    """Return the incarnation of the only node."""
    async with Database(url) as database:
        (row,) = await DatabaseNodes(database, RING.derive("cluster announcements")).nodes()
        return row.announced.incarnation


async def test_attacks_on_the_listener(tmp_path: Path, database: str) -> None:
    """Only a request that a node with the keys has made for this one, now, runs; and only once."""
    async with cluster(tmp_path, database, "a") as nodes, client() as http:
        a = nodes["a"]
        page = await Page.open(http, a)
        path = a.folder / "node.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        receiver, numbers = await incarnation(database), iter(range(1, 100))
        async with aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(str(path)), skip_auto_headers=("accept",)
        ) as raw:

            def made(body: bytes, /, **changes: Any) -> Envelope:
                envelope = Envelope(
                    sender="an-attacker", receiver=receiver, mount="page", method="POST", target=CALLS,
                    caller=ForwardedCaller.of(LOCAL), authenticated=time.time(), capabilities=("app",),
                    client="192.0.2.1",
                    trace={}, deadline=time.time() + 60, fields=fields_digest(FIELDS), body=body_digest(body),
                    time=time.time(), number=next(numbers),
                )  # fmt: skip
                return replace(envelope, **changes)

            async def send(
                body: bytes, text: str, target: str = CALLS, fields: Mapping[str, str] = FIELDS, method: str = "POST"
            ) -> tuple[int, str | None]:
                headers = {**fields, HEADER: text}
                async with raw.request(method, f"http://node{target}", data=body, headers=headers) as answer:
                    await answer.read()
                    return answer.status, answer.headers.get(OWNER)

            body = call(page.view, page.proof())
            other, foreign = call(page.view, page.proof()), SigningKeys((b"f" * 32,))
            bare = ForwardedCaller.of(dataclasses.replace(LOCAL, capabilities=frozenset({"approve"})))
            refused = {
                "unsigned": await send(body, ""),
                "forged": await send(body, seal(made(body), foreign)),
                "another key of the gateway": await send(body, seal(made(body), RING.derive("cluster ids"))),
                "redirected": await send(body, seal(made(body, receiver="b" * 12), FORWARD)),
                "stale": await send(body, seal(made(body, time=time.time() - 60), FORWARD)),
                "late": await send(body, seal(made(body, deadline=time.time() - 1), FORWARD)),
                "another body": await send(other, seal(made(body), FORWARD)),
                "another target": await send(body, seal(made(body), FORWARD), target=f"{CALLS}?x=1"),
                "another path": await send(body, seal(made(body), FORWARD), target="/mcp/page"),
                "another field": await send(
                    body, seal(made(body), FORWARD), fields={**FIELDS, "mcp-session-id": "f" * 32}
                ),
                "no capability": await send(body, seal(made(body, caller=bare), FORWARD)),
                "unknown mount": await send(body, seal(made(body, mount="nothing"), FORWARD)),
                "no call": await send(b"x", seal(made(b"x"), FORWARD)),
            }
            assert {name: status for name, (status, _) in refused.items() if status != 403} == {}
            assert nodes.arrived == []

            good = seal(made(body), FORWARD)
            assert (await send(body, good))[0] == 200
            assert nodes.arrived == ["GET /api/attack"]
            assert (await send(body, good))[0] == 403
            assert nodes.arrived == ["GET /api/attack"]

            about = AboutTaint((LOCAL.id, "page"), TaintGroup.LAUNCHED, None)
            for target, body, status in (
                (TAINTS, write_about(about), 204),
                (FORMER, page.proof().encode(), 204),
                (BODIES, b"no-such-body", 404),
                (DOCUMENTS, encode_texts("no-such-page", "page.example"), 404),
                (MOVED, page.view.encode(), 409),
                (PING, b"", 200),
                (UPSTREAMS, b"", 404),
            ):
                streamed = {"body": STREAM} if target == UPSTREAMS else {}
                refused = {
                    "unsigned": await send(body, "", target),
                    "forged": await send(body, seal(made(body, target=target, **streamed), foreign), target),
                    "redirected": await send(
                        body, seal(made(body, target=target, receiver="b" * 12, **streamed), FORWARD), target
                    ),
                    "stale": await send(
                        body, seal(made(body, target=target, time=time.time() - 60, **streamed), FORWARD), target
                    ),
                    "late": await send(
                        body, seal(made(body, target=target, deadline=time.time() - 1, **streamed), FORWARD), target
                    ),
                    "altered": await send(body + b"x", seal(made(body, target=target), FORWARD), target),
                    "streamed, or not": await send(
                        body, seal(made(body, target=target, **({} if streamed else {"body": STREAM})), FORWARD), target
                    ),
                    "for another path": await send(body, seal(made(body, **streamed), FORWARD), target),
                }
                assert {name: one for name, (one, _) in refused.items() if one != 403} == {}, target
                good = seal(made(body, target=target, **streamed), FORWARD)
                assert (await send(body, good, target))[0] == status, target
                assert (await send(body, good, target))[0] == 403, target

            ids = ObjectIds(RING.derive("cluster ids"), lambda: "elsewhere-12", lambda size: b"r" * size)
            strange = ids.new(ObjectKind.VIEW)
            body = call(strange, f"{strange}.1.x")
            status, owner = await send(body, seal(made(body), FORWARD))
            assert (status, owner) == (NOT_OWNER, "elsewhere-12")  # it is told, and sends nothing on
            assert (await send(b"", "", target="/", method="GET"))[0] == 404
