"""The end of a gateway: announced first, running calls have time, and what is left is answered with an error."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cli.test_serve import wait_exit
from tests.cli.test_stop import reach_door, serving
from tests.world import free_port, local_client


async def test_the_end_is_announced_while_the_gateway_still_listens(tmp_path: Path) -> None:
    """`/readyz` turns 503 at once, new connections are served for `announce`, and a second signal ends that."""
    admin = free_port()
    more = f"drain: {{announce: 10m}}, admin_listen: 127.0.0.1:{admin}, admin_hosts: [gateway-0.pods]"
    async with serving(tmp_path, server=more) as gateway, local_client() as http:
        site = {"host": gateway.hosts["app"], "webmcp-gateway-client": "1"}
        plain, own = f"http://localhost:{gateway.port}", f"http://127.0.0.1:{admin}"
        async with http.get(f"{own}/readyz") as answer:
            said = await answer.json()
        assert (answer.status, said["status"], said["checks"]["database"]) == (200, "ok", {"status": "ok"})
        call = asyncio.ensure_future(http.get(f"{plain}/api/held", headers=site))
        async with asyncio.timeout(60):
            await gateway.backend.arrived.wait()
        await gateway.stop()
        for url in (plain, own):
            async with http.get(f"{url}/readyz") as answer:
                assert (answer.status, (await answer.json())["status"]) == (503, "draining")
        async with http.get(f"{own}/readyz", headers={"host": f"gateway-0.pods:{admin}"}) as answer:
            assert (await answer.json())["running_calls"] == 1
        async with http.get(f"{plain}/api/other", headers=site) as answer:
            assert answer.status == 200
        gateway.backend.go_on.set()
        assert (await call).status == 200
        gateway.process.terminate()
        code, output = await wait_exit(gateway.process)
    assert (code, "Traceback" in output) == (0, False), output


async def test_a_call_that_does_not_end_in_time_is_answered_with_an_error(tmp_path: Path) -> None:
    """After `drain.timeout`; an event stream of the backend ends at once, as a complete answer."""
    async with serving(tmp_path, server="drain: {announce: 0s, timeout: 1s}") as gateway, local_client() as http:
        site = {"host": gateway.hosts["app"], "accept": "text/event-stream", "webmcp-gateway-client": "1"}
        events = await http.get(f"http://localhost:{gateway.port}/api/events", headers=site)
        assert (events.status, await events.content.readline()) == (200, b"data: 1\n")
        assert (events.headers["x-accel-buffering"], "no-transform" in events.headers["cache-control"]) == ("no", True)
        async with reach_door(gateway, "modern-sdk") as way:
            call = asyncio.ensure_future(way.ask({"url": "/api/held", "method": "POST", "body": "{}"}))
            async with asyncio.timeout(60):
                await gateway.backend.arrived.wait()
            await gateway.stop()
            assert await events.content.read() == b"\n"
            answer = await call
            assert (answer.status, answer.reason) == (503, "gateway-stopping")
        code, output = await wait_exit(gateway.process)
        assert (code, "Traceback" in output) == (0, False), output
        assert gateway.outcomes()["/api/held"]["reason"] == "gateway-stopping"
