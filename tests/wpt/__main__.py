"""`python -m tests.wpt CHECKOUT`: prints the subtests that pass natively and not in a view."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from tests.browser.conftest import launch
from tests.wpt.checkout import AREAS, cases_of, sent_headers
from tests.wpt.results import Result, format_result, read_results, summary
from tests.wpt.running import Gateway, Outcome, Site, gateway, run_natively, site

_BATCH = 30
"""The number of pages that share a gateway."""


def main() -> None:
    """Run the tests that the arguments select."""
    parser = argparse.ArgumentParser(prog="make wpt", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of web-platform-tests, outside of this repository")
    parser.add_argument("--tools", type=Path, help="the checkout whose tools/wptserve serves it, if it has none")
    parser.add_argument("--only", default=" ".join(AREAS), help="paths with which the pages begin, with spaces between")
    parser.add_argument("--jobs", type=int, default=2, help="pages at a time")
    parser.add_argument(
        "--results", type=Path, default=Path(tempfile.gettempdir()) / "wpt.jsonl", help="where to write"
    )
    parser.add_argument("--again", action="store_true", help="of the results, only the pages that differed")
    given = parser.parse_args()
    tools = (given.tools or given.checkout).resolve()
    if not (tools / "tools" / "wptserve").is_dir():
        parser.error(f"{tools} has no tools/wptserve: name a checkout that has it with WPT_TOOLS=…")
    prefixes = tuple(given.only.split())
    asyncio.run(run(given.checkout.resolve(), tools, prefixes, given.jobs, given.results, again=given.again))


async def run(checkout: Path, tools: Path, prefixes: tuple[str, ...], jobs: int, file: Path, *, again: bool) -> None:
    """Run the pages below `prefixes`, write each result into `file`, and print the differences."""
    cases, left_out = cases_of(checkout, prefixes)
    known = read_results(file) if again else {}
    urls = [case.url for case in cases if case.url not in known or known[case.url].differs()]
    headers = sent_headers(checkout, prefixes)
    results = dict(known)
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        async with site(tools, checkout) as served, async_playwright() as playwright:
            browser = await launch(playwright, "--host-resolver-rules=MAP *.test 127.0.0.1, MAP *.localhost 127.0.0.1")
            for batch in _batches(urls):
                async with gateway(Path(folder), served, batch, headers) as door:
                    async for result in _each(browser, served, door, batch, jobs, known):
                        results[result.url] = result
                        count += 1
                        print(f"[{count}/{len(urls)}] {result.line()}", flush=True)
                        file.write_text("".join(map(format_result, results.values())), "utf-8")
            await browser.close()
    print(summary(results.values(), left_out))


def _batches(urls: Sequence[str]) -> Iterator[Sequence[str]]:
    return (urls[start : start + _BATCH] for start in range(0, len(urls), _BATCH))


async def _each(
    browser: Browser, served: Site, door: Gateway, urls: Sequence[str], jobs: int, known: dict[str, Result]
) -> AsyncIterator[Result]:
    turns = asyncio.Semaphore(jobs)

    async def both(url: str) -> Result:
        async with turns:
            native = known[url].native if url in known else await run_natively(browser, served.origin, url)
            passed = any(native.passes(name) for name in native.subtests)
            return Result(url, native, await door.run(browser, url) if passed else Outcome())

    for done in asyncio.as_completed([both(url) for url in urls]):
        yield await done


if __name__ == "__main__":
    main()
