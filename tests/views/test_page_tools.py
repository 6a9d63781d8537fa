"""The tools of pages in the directory: listed, removed, and left out."""

from gateway.model import LOCAL
from gateway.views.registry import Views
from tests.views.pages import Page, connect, text, until
from tests.views.rules import EVE


async def test_tools_come_and_go_with_the_page(views: Views) -> None:
    """The directory follows the page; it contains only what the policy lists, and watchers are notified."""
    changes: list[str] = []
    views.watch(lambda principal: changes.append(principal.subject))

    async def add(arguments: dict[str, object]) -> dict[str, object]:
        return text("added")

    page = Page()
    page.register("add", add, description="Add\u202e it")
    page.register("unlisted", add)
    page.register("closed", add)
    view = connect(views, LOCAL, page)
    await until(lambda: bool(view.tools))
    assert [(tool.name, tool.description) for tool in views.tools(LOCAL, None)] == [("cart_add", "Add it")]
    assert views.tools(EVE, None) == ()
    assert changes
    page.drop("add")
    await until(lambda: not view.tools)
    views.close(view)
    assert views.live(LOCAL) == ()


async def test_a_page_that_talks_nonsense_loses_only_its_session(views: Views) -> None:
    """Garbage is skipped; too many requests end the session of that page."""
    loud, quiet = Page(), Page()

    async def add(arguments: dict[str, object]) -> dict[str, object]:
        return text("added")

    for page in (loud, quiet):
        page.register("add", add)
        connect(views, LOCAL, page)
    assert loud.view is not None
    assert quiet.view is not None
    await until(lambda: bool(quiet.view and quiet.view.tools and loud.view and loud.view.tools))
    session = loud.view.session
    assert session is not None
    assert session.receive({"jsonrpc": "1.0", "garbage": []})
    assert session.receive({"jsonrpc": "2.0", "method": "notifications/progress"})
    said = [session.receive({"jsonrpc": "2.0", "id": number, "method": "ping"}) for number in range(1000)]
    assert said[0] is True
    assert said[-1] is False
    assert quiet.view.tools


async def test_hostile_definitions_are_left_out(views: Views) -> None:
    """Deep, large and odd schemas, and tools beyond fifty, do not reach the model."""
    deep: dict[str, object] = {}
    for _ in range(40):
        deep = {"type": "object", "properties": {"a": deep}}
    large = {"type": "object", "description": "x" * 20_000}

    async def run(arguments: dict[str, object]) -> dict[str, object]:
        return text("")

    for schema in (deep, large, {"type": "array"}):
        page = Page()
        page.register("add", run, inputSchema=schema)
        page.register("held", run)
        view = connect(views, LOCAL, page)
        await until(lambda view=view: bool(view.tools))  # type: ignore[misc]  # bound per round
        assert [tool.page_name for tool in view.tools] == ["held"]
        views.close(view)
