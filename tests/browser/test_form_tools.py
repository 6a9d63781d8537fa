"""Forms that a page declares as tools (`<form toolname=…>`)."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from playwright.async_api import Page, expect

from tests.apps.packing import write
from tests.browser.runtime_host import Host, host_server, pack_html
from tests.browser.test_webmcp import call_tool, open_page, wait_listed

FORM = """<!doctype html><body><p>page</p><script>
  window.submitted = [];
  document.addEventListener("submit", (event) => {
    if (event.target.id === "plain") return;
    event.preventDefault();
    const values = Object.fromEntries([...new Set(new FormData(event.target).keys())].map((key) =>
      [key, new FormData(event.target).getAll(key)]));
    submitted.push([event.agentInvoked, values]);
    if (event.target.dataset.fails) return event.respondWith?.(Promise.reject(new Error("sold out")));
    if (event.target.dataset.answers) event.respondWith?.(Promise.resolve({booked: values.seats}));
  });
</script>
<form id="book" toolname="book" tooldescription="Books a table." data-answers="yes">
  <label>Seats <input name="seats" type="number" min="1" max="8" required></label>
  <input name="day" type="date" toolparamdescription="When" toolparamtitle="Day">
  <label>Room<!-- in or out -->
    <select name="room"><option value="">Any<option value="inside">Inside<option value="garden">Garden</select></label>
  <label><input type="radio" name="meal" value="lunch">Lunch</label><input type="radio" name="meal" value="dinner">
  <input type="checkbox" name="dog" aria-label="With a dog">
  <input type="checkbox" name="extras" value="cake"><input type="checkbox" name="extras" value="wine">
  <textarea name="wish" placeholder="A wish" maxlength="9"></textarea>
  <input type="hidden" name="token" value="t"><input type="password" name="secret"><button name="go">Go</button>
</form></body>"""


def choices(**titles: str) -> dict[str, Any]:
    """The schema of an enumeration, with the labels."""
    options = [
        {"type": "string", "const": value} | ({"title": title} if title else {}) for value, title in titles.items()
    ]
    return {"type": "string", "anyOf": options, "enum": [*titles]}


SCHEMA = {
    "type": "object",
    "properties": {
        "seats": {"type": "number", "minimum": 1, "maximum": 8, "multipleOf": 1, "description": "Seats"},
        "day": {"type": "string", "format": "date", "title": "Day", "description": "When"},
        "room": {**choices(**{"": "Any"}, inside="Inside", garden="Garden"), "description": "Room"},
        "meal": choices(lunch="Lunch", dinner=""),
        "dog": {"type": "boolean", "description": "With a dog"},
        "extras": {"type": "array", "items": choices(cake="", wine=""), "uniqueItems": True},
        "wish": {"type": "string", "maxLength": 9, "description": "A wish"},
    },
    "required": ["seats"],
}


async def test_a_form_is_a_tool(host: Host, tmp_path: Path) -> None:
    """Its controls define the schema, except hidden fields, passwords and buttons."""
    await open_page(host, tmp_path, FORM)
    tools = await wait_listed(host, "book")
    assert tools["book"]["description"] == "Books a table."
    assert tools["book"]["inputSchema"] == SCHEMA


async def test_a_call_fills_and_submits_the_form(host: Host, tmp_path: Path) -> None:
    """The page handles the submit event, which is marked as an agent's, and may respond."""
    frame = await open_page(host, tmp_path, FORM)
    given = {
        "seats": 4, "day": "2027-01-02", "room": "garden", "meal": "dinner", "dog": True, "extras": ["wine"],
        "wish": "sun",
    }  # fmt: skip
    answer = await call_tool(host, "book", given)
    assert answer["result"]["structuredContent"] == {"booked": ["4"]}
    ((agent, values),) = await frame.evaluate("submitted")
    assert agent is True
    assert values == {
        "seats": ["4"], "day": ["2027-01-02"], "room": ["garden"], "meal": ["dinner"], "dog": ["on"],
        "extras": ["wine"],
        "wish": ["sun"], "token": ["t"], "secret": [""],
    }  # fmt: skip


async def test_a_form_that_is_not_valid_is_not_submitted(host: Host, tmp_path: Path) -> None:
    """The error names the field."""
    frame = await open_page(host, tmp_path, FORM)
    answer = await call_tool(host, "book", {"seats": 9})
    assert answer["result"]["isError"]
    assert answer["result"]["content"][0]["text"].startswith("seats: ")
    assert await frame.evaluate("submitted") == []


async def test_a_form_that_fails_says_so(host: Host, tmp_path: Path) -> None:
    """Its response is the error; without a response the form counts as submitted."""
    frame = await open_page(host, tmp_path, FORM)
    await frame.evaluate("book.dataset.fails = 'yes'")
    answer = await call_tool(host, "book", {"seats": 1})
    assert (answer["result"]["isError"], answer["result"]["content"][0]["text"]) == (True, "sold out")
    await frame.evaluate("() => { delete book.dataset.fails; delete book.dataset.answers; }")
    answer = await call_tool(host, "book", {"seats": 1})
    assert answer["result"]["content"][0]["text"] == "The form was submitted."


FOUND = '{"status":"The form was submitted.","url":"https://cart.invalid/api/find","title":"","text":"found"}'


async def test_a_form_without_a_script_answers_as_its_backend_did(host: Host, tmp_path: Path) -> None:
    """The result is the answer as JSON or text; a refused or lost request is an error.

    Read-only controls stay unset.
    """
    form = "<form toolname=find tooldescription=Finds action=/api/find method=post><input name=what>"
    rest = "<input name=why value=so><input name=fixed readonly><fieldset disabled><input name=off></fieldset></form>"
    await open_page(host, tmp_path, form + rest)
    tools = await wait_listed(host, "find")
    assert [*tools["find"]["inputSchema"]["properties"]] == ["what", "why"]
    seen = []
    for answer in (
        "return { bodyType: 'json', body: { found: args.body }, headers: { 'content-type': 'application/json' } };",
        "return { bodyType: 'text', body: '<p>found', headers: { 'content-type': 'text/html' } };",
        "return { status: 403, statusText: 'Forbidden', bodyType: 'text', body: 'not yours' };",
        "",
    ):
        await host.answers(answer)
        if not answer:
            lost = "{ failure: { code: -32000, message: 'lost' } }"
            await host.run(f"() => {{ host.tools.http_request = () => ({lost}); }}")
        result = (await call_tool(host, "find", {"what": "tea", "why": None}))["result"]
        seen.append((result.get("isError"), result["content"][0]["text"]))
    assert seen[:3] == [
        (None, '{"found":"what=tea&why=so&fixed="}'),
        (None, FOUND),
        (True, "The form was submitted, and answered with 403 Forbidden. not yours"),
    ]
    assert seen[3] == (True, "Failed to fetch")


NEXT_PAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "main text": (
        "<title>Found</title><nav>Home</nav><main><h1>Two  rooms</h1><ul><li>Garden<li>Attic</ul>"
        "<script>1</script><style>a{}</style></main><footer>Imprint</footer>",
        {"title": "Found", "text": "Two rooms\nGarden\nAttic"},
    ),
    "no main": (
        "<title>Found</title><header>Shop</header><nav>Home</nav><div>One</div><p>two",
        {"title": "Found", "text": "One\ntwo"},
    ),
    "json-ld": (
        '<title>Paid</title><script type="application/ld+json">{"@type": "Order", "price": 7}</script><p>Thanks',
        {"title": "Paid", "data": {"@type": "Order", "price": 7}},
    ),
    "two and a broken one": (
        '<script type="application/ld+json">[1]</script><script type="application/ld+json">{</script>'
        '<script type="Application/LD+JSON">{"a": 1}</script>',
        {"title": "", "data": [[1], {"a": 1}]},
    ),
}


@pytest.mark.parametrize("name", NEXT_PAGES)
async def test_the_model_reads_the_page_to_which_a_form_leads(host: Host, tmp_path: Path, name: str) -> None:
    """Its address after redirects, title, and JSON-LD or main text; none of its scripts runs."""
    html, told = NEXT_PAGES[name]
    head = {"headers": {"content-type": "text/html"}, "url": "/found", "redirected": True}
    answer = {"bodyType": "text", "body": html, **head}
    await open_page(host, tmp_path, "<form toolname=find tooldescription=Finds method=post><input name=what></form>")
    await wait_listed(host, "find")
    await host.answers(f"return {json.dumps(answer)};")
    result = (await call_tool(host, "find", {"what": "tea"}))["result"]
    place = {"status": "The form was submitted.", "url": "https://cart.invalid/found"}
    assert result["structuredContent"] == place | told


async def test_a_form_that_leads_to_another_page_of_the_app_is_answered_with_it(page: Page, tmp_path: Path) -> None:
    """Before this page goes, which then shows the other one."""
    form = "<form toolname=find tooldescription=Finds action=found.html><input name=q></form>"
    write(tmp_path, index__html=f"<!doctype html><title>Index</title>{form}")
    write(tmp_path, found__html="<!doctype html><title>Found</title><main>Tea, 3 kinds</main>")
    async with host_server() as url:
        await page.goto(url)
        host = Host(page)
        frame = await open_page(host, tmp_path, (tmp_path / "index.html").read_text("utf-8"))
        await wait_listed(host, "find")
        result = (await call_tool(host, "find", {"q": "tea"}))["result"]
        there = "https://cart.invalid/found.html?q=tea"
        told = {"status": "The form was submitted.", "url": there, "title": "Found", "text": "Tea, 3 kinds"}
        assert result["structuredContent"] == told
        await expect(frame.get_by_text("Tea, 3 kinds")).to_be_visible()


async def test_a_form_that_goes_as_it_is_filled_has_an_answer(host: Host, tmp_path: Path) -> None:
    """The form is removed while it is filled, so no answer of a backend is awaited."""
    goes = "<input name=what onchange=this.form.remove()>"
    form = f"<form toolname=find tooldescription=Finds action=/api/find>{goes}</form>"
    await open_page(host, tmp_path, form)
    await wait_listed(host, "find")
    assert (await call_tool(host, "find", {"what": "tea"}))["result"]["content"][0]["text"] == "The form was submitted."


async def test_forms_that_come_change_and_go_are_followed(host: Host, tmp_path: Path) -> None:
    """Changes of attributes, controls and whole forms are each announced to the host."""
    frame = await open_page(host, tmp_path, FORM)
    await wait_listed(host, "book")
    await frame.evaluate("book.elements.seats.max = 2")
    await frame.evaluate("document.body.insertAdjacentHTML('beforeend', '<form toolname=find tooldescription=Finds>')")
    tools = await wait_listed(host, "book", "find")
    assert tools["book"]["inputSchema"]["properties"]["seats"]["maximum"] == 2
    await frame.evaluate("book.setAttribute('toolname', 'reserve')")
    await wait_listed(host, "reserve", "find")
    await frame.evaluate("book.remove()")
    await wait_listed(host, "find")
    assert await host.run("() => host.of('notifications/tools/list_changed').length") >= 3


ADDING = {
    "innerHTML": "document.querySelector('p').innerHTML = text",
    "insertAdjacentHTML": "document.body.insertAdjacentHTML('beforeend', text)",
    "fragment": "document.body.append(document.createRange().createContextualFragment(text))",
    "parser": "document.body.append(new DOMParser().parseFromString(text, 'text/html').forms[0])",
    "unsafe": "document.querySelector('p').setHTMLUnsafe(text)",
}


@pytest.mark.parametrize("adding", ADDING)
async def test_a_form_of_fetched_markup_is_a_tool(host: Host, tmp_path: Path, adding: str) -> None:
    """The page itself contains no such form, and no tool."""
    await host.answers(
        "return { bodyType: 'text', headers: { 'content-type': 'text/html' },"
        " body: '<form toolname=find tooldescription=Finds><input name=what></form>' };"
    )
    script = f"fetch('/api/part').then((answer) => answer.text()).then((text) => {{ {ADDING[adding]}; }})"
    await open_page(host, tmp_path, f"<!doctype html><body><p>page</p><script>{script}</script></body>")
    tools = await wait_listed(host, "find")
    assert [*tools["find"]["inputSchema"]["properties"]] == ["what"]
    assert "error" not in await call_tool(host, "find", {"what": "a bowl"})


async def test_a_form_is_a_tool_on_its_own_site_too(page: Page, tmp_path: Path) -> None:
    """Without a host and native WebMCP, the page's scripts (for instance a library) see the tool."""
    html = pack_html(tmp_path, FORM)
    async with host_server() as url:
        await page.route("**/site.html", lambda route: route.fulfill(body=html, content_type="text/html"))
        await page.goto(f"{url}/../site.html")
        listed = await page.evaluate(
            "document.modelContext.getTools().then((all) => all.map((one) => one.inputSchema))"
        )
        answer = await page.evaluate(
            """async () => {
              const [tool] = await document.modelContext.getTools();
              return JSON.parse(await document.modelContext.executeTool(tool, { seats: 4 }));
            }"""
        )
        ((agent, values),) = await page.evaluate("submitted")
        assert await page.evaluate("webmcpGateway.tier") == "standalone"
    assert listed == [SCHEMA]
    assert answer == {"booked": ["4"]}
    assert (agent, values["seats"]) == (True, ["4"])


async def test_a_form_in_a_shadow_root_is_a_tool_while_it_is_in_the_page(host: Host, tmp_path: Path) -> None:
    """The tool exists while its element is in the page, also in nested shadow roots."""
    inside = "<form toolname=find tooldescription=Finds><input name=what></form>"
    html = f"""<!doctype html><form toolname=book tooldescription=Books></form><script>
      const made = (html) => {{
        const element = document.createElement("div");
        element.attachShadow({{mode: "closed"}}).innerHTML = html;
        return element;
      }};
      const outer = document.createElement("div");
      outer.attachShadow({{mode: "open"}}).append(made({inside!r}));
    </script>"""
    frame = await open_page(host, tmp_path, html)
    await wait_listed(host, "book")
    for _ in range(2):
        await frame.evaluate("document.body.append(outer)")
        await wait_listed(host, "book", "find")
        await frame.evaluate("outer.remove()")
        await wait_listed(host, "book")


async def test_a_form_in_a_shadow_root_that_html_declares_is_a_tool(host: Host, tmp_path: Path) -> None:
    """No script attached that root; a form that is added to it later is a tool, too."""
    root = "<template shadowrootmode=open><form toolname=find tooldescription=Finds></form></template>"
    frame = await open_page(host, tmp_path, f"<!doctype html><div id=holder>{root}</div>")
    await wait_listed(host, "find")
    form = "<form toolname=book tooldescription=Books></form>"
    await frame.evaluate("(form) => holder.shadowRoot.lastChild.insertAdjacentHTML('afterend', form)", form)
    await wait_listed(host, "find", "book")


async def test_a_form_with_the_name_of_another_tool_is_left_out(host: Host, tmp_path: Path) -> None:
    """The first form of a name is the tool; a form without a description is none."""
    more = "<form toolname=book tooldescription=Other></form><form toolname=bare></form></body>"
    await open_page(host, tmp_path, FORM.replace("</body>", more))
    tools = await wait_listed(host, "book")
    assert tools["book"]["description"] == "Books a table."


CONTROLS = """<!doctype html><body><form id=all toolname=book tooldescription=Books action=/api/book method=post>
  <input name=text><input name=short maxlength=3><input name=long minlength=3><input name=letters pattern=[a-z]+>
  <input name=number type=number min=1 max=9 step=2><input name=range type=range min=0 max=10 step=5>
  <input name=date type=date min=2027-01-01><input name=time type=time><input name=seconds type=time step=1>
  <input name=local type=datetime-local><input name=month type=month><input name=week type=week>
  <input name=color type=color><input name=email type=email><input name=emails type=email multiple>
  <input name=url type=url>
  <input name=box type=checkbox><input name=boxes type=checkbox value=a><input name=boxes type=checkbox value=b>
  <input name=radio type=radio value=1><input name=radio type=radio value=2>
  <select name=one><option value=1>One<option value=2 disabled>Two</select>
  <object name=object></object><output name=output></output>
  <select name=more multiple><option value=a>A<option value=b>B</select>
  <textarea name=area maxlength=4></textarea><input name=constructor>
  <input name=file type=file><input name=hidden type=hidden><input name=fixed readonly><input name=off disabled>
  <button name=go value=yes>Go</button>
</form></body>"""
TAKEN: list[tuple[str, Any, str]] = [
    ("text", "a", "a"), ("text", 1, "1"), ("short", "abc", "abc"), ("long", "abc", "abc"), ("letters", "abc", "abc"),
    ("number", 3, "3"), ("number", "3", "3"), ("range", 5, "5"), ("date", "2027-01-02", "2027-01-02"),
    ("time", "08:30", "08:30"), ("seconds", "08:30:15", "08:30:15"), ("local", "2027-01-02T08:30", "2027-01-02T08:30"),
    ("month", "2027-01", "2027-01"), ("week", "2027-W02", "2027-W02"), ("color", "#aabbcc", "#aabbcc"),
    ("email", "a@b.example", "a@b.example"), ("emails", "a@b.example, c@d.example", "a@b.example,c@d.example"),
    ("url", "https://a.example/", "https://a.example/"), ("box", True, "on"), ("boxes", ["b"], "b"),
    ("radio", "2", "2"), ("radio", 2, "2"), ("one", "1", "1"), ("more", ["a"], "a"), ("area", "a\nb", "a\r\nb"),
    ("constructor", "x", "x"),
]  # fmt: skip
REFUSED: list[tuple[str, Any]] = [
    ("text", "two\nlines"), ("text", {"a": 1}), ("text", ["a"]), ("short", "abcd"), ("long", "ab"), ("letters", "1"),
    ("number", 2), ("number", 11), ("number", "x"), ("number", True), ("range", 4), ("range", 20),
    ("date", "2027-02-30"), ("date", "2026-01-01"), ("date", "2027-01-02T00:00:00Z"), ("time", "08:30:00Z"),
    ("time", "8 pm"), ("local", "2027-01-02T08:30:00Z"), ("local", "2027-01-02T08:30:00+01:00"), ("month", "2027-13"),
    ("week", "2027-W60"), ("color", "no color"), ("email", "nobody"), ("emails", "a@b.example, nobody"),
    ("url", "a.example"),
    ("number", ""), ("number", " 3"), ("range", ""), ("boxes", ["a", "a"]), ("more", ["b", "b"]), ("object", "x"),
    ("output", "x"), ("box", "on"), ("boxes", "a"), ("boxes", ["c"]), ("boxes", True), ("radio", "3"), ("one", "2"),
    ("one", "One"),
    ("more", "a"), ("more", ["c"]), ("area", "abcde"), ("file", "x"), ("hidden", "x"), ("fixed", "x"), ("off", "x"),
    ("go", "x"), ("toString", "x"),
]  # fmt: skip


async def test_each_control_gets_what_it_takes_and_refuses_the_rest(host: Host, tmp_path: Path) -> None:
    """The given value is submitted; if it would be changed or dropped, nothing is filled in or submitted."""
    await host.answers(
        "return { bodyType: 'json', body: { sent: args.body }, headers: { 'content-type': 'application/json' } };"
    )
    frame = await open_page(host, tmp_path, CONTROLS)
    await wait_listed(host, "book")
    for name, value, sent in TAKEN:
        await frame.evaluate("all.reset()")
        result = (await call_tool(host, "book", {name: value}))["result"]
        assert not result.get("isError"), (name, value, result)
        pairs = parse_qsl(result["structuredContent"]["sent"], keep_blank_values=True)
        assert [given for key, given in pairs if key == name] == [sent], (name, value)
        assert ("go", "yes") in pairs
    sent_before = await host.run("() => host.calls('http_request').length")
    for name, value in REFUSED:
        await frame.evaluate("all.reset()")
        result = (await call_tool(host, "book", {"text": "filled", name: value}))["result"]
        assert result.get("isError"), (name, value, result)
        assert name in result["content"][0]["text"]
        if name not in ("letters", "number", "date", "email", "emails", "url"):  # which the form's validation rejects
            assert await frame.evaluate("all.elements.text.value") == "", (name, value)
    assert await host.run("() => host.calls('http_request').length") == sent_before


async def test_a_refused_value_says_what_the_control_takes(host: Host, tmp_path: Path) -> None:
    """The message describes the format, or the existing fields."""
    await open_page(host, tmp_path, CONTROLS)
    tools = await wait_listed(host, "book")
    properties = tools["book"]["inputSchema"]["properties"]
    assert properties["time"] == {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}
    assert "format" not in properties["local"]
    assert properties["one"] == choices(**{"1": "One"})
    for name, value, words in (
        ("time", "08:30:00Z", "a local time as HH:MM, without a time zone"),
        ("local", "2027-01-02T08:30:00Z", "a local date and time as YYYY-MM-DDTHH:MM, without a time zone"),
        ("one", "9", 'it takes "1"'),
        ("short", "abcd", "3 characters at most"),
        ("box", "on", "it takes true or false"),
        ("nothing", 1, "The form has: text, short"),
    ):
        answer = (await call_tool(host, "book", {name: value}))["result"]
        assert words in answer["content"][0]["text"]
