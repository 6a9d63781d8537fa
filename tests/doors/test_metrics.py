"""`/metrics`: what is counted, who may read it, and that no outside value becomes a label."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.world import World

CLIENT = {"webmcp-gateway-client": "1"}


async def scrape(world: World) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return every value by its name and labels."""
    async with world.client() as client, client.get(f"{world.url}/metrics") as answer:
        assert answer.status == 200
        text = await answer.text()
    return {
        (sample.name.removeprefix("webmcp_gateway_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(values: Mapping[tuple[str, tuple[tuple[str, str], ...]], float], name: str, **labels: str) -> float:
    """Return the sum over all series that have these labels."""
    return sum(value for (found, have), value in values.items() if found == name and set(labels.items()) <= set(have))


async def test_requests_and_refusals_are_counted(world: World) -> None:
    """By app, door, route and decision; with the duration of each step."""
    before = await scrape(world)
    async with world.client(headers=CLIENT) as client:
        for path in ("/api/products", "/api/products", "/nowhere/at-all-8351"):
            async with client.get(world.site + path):
                pass
    after = await scrape(world)

    def more(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    assert more("requests_total", app="cart", door="site", decision="allow", status="2xx") == 2
    assert more("refusals_total", app="cart", door="site", reason="policy-denied") == 1
    assert more("step_seconds_count", kind="http", step="send") == 2
    assert more("request_seconds_count", app="cart", kind="http") == 3
    assert more("journal_lines_total", kind="http", phase="outcome") == 3
    assert total(after, "token_requests_total", credential="shop-service", outcome="ok") == 1
    assert total(after, "journal_bytes") > 0
    assert ("configuration_problems", (("kind", "broken"),)) in after
    assert "8351" not in str(list(after))


async def test_what_alerts_count_is_there_before_it_happens(world: World) -> None:
    """Prometheus takes a counter that first appears as 1 for one that did not increase."""
    values = await scrape(world)
    for name, label, said in (
        ("secrets_masked_total", "credential", "shop-service"),
        ("secrets_masked_total", "credential", "cookie jar"),
        ("journal_failures_total", "consequence", "refused"),
        ("journal_failures_total", "consequence", "continued"),
        ("sink_failures_total", "sink", "database"),
    ):
        assert values[name, ((label, said),)] == 0, name


async def made_up(world: World, number: int) -> None:
    """Send requests of all kinds with invented values wherever a caller may choose one."""
    word = f"made-up-{number}"
    call = {"jsonrpc": "2.0", "id": word, "method": "tools/call", "params": {"name": word, "arguments": {word: word}}}
    headers = {**CLIENT, "accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
    async with world.client(headers=CLIENT) as client:
        for method in ("GET", "POST", "DELETE", f"X{number}"):
            async with client.request(method, f"{world.site}/api/{word}", headers={word: word}):
                pass
        for url in (f"{world.url}/{word}", f"{world.url}/mcp/{word}", f"{world.console}/api/approvals/{word}"):
            async with client.post(url, json={"answer": word}):
                pass
        for app in ("", "/cart"):
            for more in ({}, {"mcp-method": "tools/call", "mcp-name": word}):
                async with client.post(f"{world.url}/mcp{app}", json=call, headers={**headers, **more}):
                    pass
        async with client.get(f"{world.site}/api/cart", headers={"traceparent": word, "origin": f"http://{word}"}):
            pass


@pytest.mark.bound("metric labels")
async def test_what_callers_make_up_adds_no_labels(world: World) -> None:
    """After the first of a kind no series are added, however many requests repeat it with other values."""
    await made_up(world, 1)
    before = set(await scrape(world))
    for number in range(2, 20):
        await made_up(world, number)
    after = set(await scrape(world))
    # Files that were new at the start are read again after a while.
    assert {name for name, _ in after - before} <= {"reloads_total", "reloads_created"}
    assert "made-up" not in str(after)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
async def test_a_scraper_needs_no_mark_and_a_page_gets_nothing(
    world: World, headers: Mapping[str, str], status: int
) -> None:
    """On the plain host."""
    async with world.client() as client, client.get(f"{world.url}/metrics", headers=headers) as answer:
        assert answer.status == status


async def test_no_other_host_has_metrics(world: World) -> None:
    """The console answers 404; on an app's site it is a path of the app, which no route allows."""
    async with world.client(headers=CLIENT) as client:
        async with client.get(f"{world.console}/metrics") as answer:
            assert answer.status == 404
        async with client.get(f"{world.site}/metrics") as answer:
            assert answer.status == 403
