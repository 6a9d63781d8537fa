"""Pages that show and try out an API."""

from typing import Any

from aiohttp import web

from tests.corpus.catalog import api, app, folder, page
from tests.corpus.visit import Visit

SPECIFICATION: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Pets", "version": "1"},
    "servers": [{"url": "/"}],
    "paths": {
        "/api/pets": {
            "get": {"summary": "List", "tags": ["pets"], "responses": {"200": {"description": "all pets"}}},
            "post": {
                "summary": "Add",
                "tags": ["pets"],
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {"type": "object", "properties": {"name": {"type": "string", "example": "Rex"}}}
                        }
                    }
                },
                "responses": {"201": {"description": "the new pet"}},
            },
        }
    },
}


HEADERS = "responses: {headers: [content-type, date, server]}"


def pets() -> web.Application:
    """The API that the pages show."""
    kept: list[Any] = []

    async def specification(_: web.Request) -> web.Response:
        return web.json_response(SPECIFICATION)

    async def every(_: web.Request) -> web.Response:
        return web.json_response(kept)

    async def add(request: web.Request) -> web.Response:
        kept.append(await request.json())
        return web.json_response(kept[-1], status=201)

    application = web.Application()
    application.router.add_get("/api/openapi.json", specification)
    application.router.add_get("/api/pets", every)
    application.router.add_post("/api/pets", add)
    return application


def swagger(package: Any, target: Any) -> None:
    """Swagger UI with the URL of the API in its settings."""
    folder()(package, target)
    settings = target / "swagger-initializer.js"
    text = settings.read_text("utf-8").replace("https://petstore.swagger.io/v2/swagger.json", "/api/openapi.json")
    settings.write_text(text.replace("dom_id:", "validatorUrl: null, dom_id:"), "utf-8")


@app(
    "Swagger UI",
    "swagger-ui-dist",
    "React, Redux",
    swagger,
    paths=("/api/**",),
    behind=api(pets),
    policy=HEADERS,
    ignore=(r"content-length: \d+", r"date: \S+ \S+ \S+ \S+ \S+"),
)
async def swagger_ui(visit: Visit) -> None:
    """Add a pet, and list the pets."""
    for method in ("post", "get"):
        await visit.click(f".opblock-{method} .opblock-summary-control")
        await visit.click(f".opblock-{method} .try-out__btn")
        await visit.click(f".opblock-{method} .execute")
        await visit.read(f".opblock-{method} .live-responses-table pre", "Rex")


RAPIDOC = """<!doctype html><html><head><meta charset="utf-8"><script type="module" src="rapidoc-min.js"></script>
</head><body><rapi-doc spec-url="/api/openapi.json" render-style="read" allow-authentication="false" load-fonts="false">
</rapi-doc></body></html>"""


@app(
    "RapiDoc",
    "rapidoc",
    "Lit, shadow roots",
    page(RAPIDOC, **{"rapidoc-min.js": "dist/rapidoc-min.js"}),
    paths=("/api/**",),
    behind=api(pets),
    quick=True,
)
async def rapidoc(visit: Visit) -> None:
    """Send a request."""
    await visit.read("[id='get-/api/pets'] h2", "List")
    await visit.click("[id='get-/api/pets'] api-request button", "Try")
    await visit.read("[id='get-/api/pets'] api-request .response-panel, [id='get-/api/pets'] api-request", "200")
    await visit.click("[id='post-/api/pets'] api-request button", "Try")
    await visit.read("[id='post-/api/pets'] api-request", "201")


REDOC = """<!doctype html><html><head><meta charset="utf-8"><title>Pets</title></head><body>
<redoc spec-url="/api/openapi.json" disable-search="true"></redoc>
<script src="redoc.standalone.js"></script></body></html>"""


@app(
    "Redoc",
    "redoc",
    "React, styled-components",
    page(REDOC, **{"redoc.standalone.js": "bundles/redoc.standalone.js"}),
    paths=("/api/**",),
    behind=api(pets),
)
async def redoc(visit: Visit) -> None:
    """Read an operation, and open its answer."""
    await visit.read("h1", "Pets")
    await visit.read("h2", "Add")
    await visit.read("[role=tabpanel]", "Rex")


ELEMENTS = """<!doctype html><html><head><meta charset="utf-8"><script src="web-components.min.js"></script>
<link rel="stylesheet" href="styles.min.css"></head><body>
<elements-api apiDescriptionUrl="/api/openapi.json" router="hash" layout="sidebar"></elements-api></body></html>"""


@app(
    "Stoplight Elements",
    "@stoplight/elements",
    "React in a custom element, hash routes",
    page(ELEMENTS, **{"web-components.min.js": "web-components.min.js", "styles.min.css": "styles.min.css"}),
    paths=("/api/**",),
    behind=api(pets),
)
async def elements(visit: Visit) -> None:
    """Go to an operation and send a request."""
    await visit.read("h1", "Pets")
    await visit.click("[title=pets]")
    await visit.click("a[title=Add], a", "Add")
    await visit.click("button", "Send API Request")
    await visit.read("pre", "Rex")
