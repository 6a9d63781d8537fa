"""A published web app, unchanged and used by a person, in the console in front of a real backend."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Page, expect

from tests.browser.test_main_job import app_of
from tests.interop.test_published import MODULES
from tests.world import running, serving

SPECIFICATION = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/api/pets": {
            "get": {"summary": "List", "responses": {"200": {"description": "all"}}},
            "post": {
                "summary": "Add",
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {"type": "object", "properties": {"name": {"type": "string", "example": "Rex"}}}
                        }
                    }
                },
                "responses": {"201": {"description": "made"}},
            },
        }
    },
}


def backend(pets: list[dict[str, Any]]) -> web.Application:
    """The API that the app describes, and calls."""

    async def specification(_: web.Request) -> web.Response:
        return web.json_response(SPECIFICATION)

    async def every(_: web.Request) -> web.Response:
        return web.json_response(pets)

    async def add(request: web.Request) -> web.Response:
        pets.append(await request.json())
        return web.json_response(pets[-1], status=201)

    app = web.Application()
    app.router.add_get("/api/openapi.json", specification)
    app.router.add_get("/api/pets", every)
    app.router.add_post("/api/pets", add)
    return app


def swagger(folder: Path) -> None:
    """Swagger UI (React, Redux) as published, except for the URL in its settings."""
    shutil.copytree(MODULES / "swagger-ui-dist", folder, ignore=shutil.ignore_patterns("*.map", "*-es-*"))
    settings = folder / "swagger-initializer.js"
    words = settings.read_text("utf-8").replace("https://petstore.swagger.io/v2/swagger.json", "/api/openapi.json")
    settings.write_text(words.replace("dom_id:", "validatorUrl: null, dom_id:"), "utf-8")


@pytest.mark.corpus
async def test_swagger_ui_works_unchanged(page: Page, tmp_path: Path) -> None:
    """It shows the backend's API, and a person's actions in it reach the backend."""
    pets: list[dict[str, Any]] = []
    swagger(tmp_path / "app")
    async with serving(backend(pets)) as port:
        behind = json.dumps({"url": f"http://127.0.0.1:{port}", "network": "private"})
        policy = f'version: 1\nbackends: {{pets: {behind}}}\nroutes: [{{path: "/api/**", methods: [GET, POST]}}]\n'
        async with running(tmp_path, source=tmp_path / "app", policy=policy) as world:
            await page.goto(world.console)
            for name in ("post", "get"):
                block = app_of(page).locator(f".opblock-{name}")
                await block.locator(".opblock-summary-control").click()
                await block.get_by_role("button", name="Try it out").click()
                await block.get_by_role("button", name="Execute").click()
                await expect(block.locator(".live-responses-table pre").first).to_contain_text("Rex")
    assert pets == [{"name": "Rex"}]
