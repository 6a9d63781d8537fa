"""Files of the backend in a packed page are loaded, without an attempt by the browser itself."""

from base64 import b64decode, b64encode
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Page, Route

from tests.browser.runtime_host import Host, pack_html, show_page
from tests.browser.twins.backend import SOUND

PAGE = "<!doctype html><p>page</p>"


LINKS = """async () => {
  const orders = ["rel href", "href rel", "rel type href", "href type rel"].map((one) => one.split(" "));
  const links = orders.flatMap((order, at) => ["property", "attribute"].map((how) => {
    const values = { rel: "stylesheet", type: "text/css", href: `/api/theme.css?${at}` };
    const link = document.createElement("link");
    for (const name of order) how === "property" ? (link[name] = values[name]) : link.setAttribute(name, values[name]);
    return link;
  }));
  links.push(links[0].cloneNode());
  const heard = links.map((link) => new Promise((done) => (link.onload = link.onerror = ({ type }) => done(type))));
  document.head.append(...links);
  return [[...new Set(await Promise.all(heard))], getComputedStyle(document.body).color];
}"""


async def test_sheets_that_a_page_adds_are_nothing_that_the_browser_tries(host: Host, tmp_path: Path) -> None:
    """In any order of its attributes a sheet loads, no request is refused, and the console is empty."""
    await host.answers(
        "return { bodyType: 'text', body: 'body { color: rgb(1, 2, 3) }', headers: { 'content-type': 'text/css' } };"
    )
    frame = await show_page(host, tmp_path, PAGE)
    tried: list[str] = []
    host.page.on("request", lambda request: tried.append(request.url))
    host.page.on("console", lambda message: tried.append(message.text))
    assert await frame.evaluate(LINKS) == [["load"], "rgb(1, 2, 3)"]
    assert tried == []


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NAMING = """<!doctype html><head><link rel="stylesheet" type="text/css" href="/api/color.css">
<link rel="stylesheet" href="/api/color.css?2"></head><body><img src="/api/pixel.png" alt="x">
<img srcset="/api/pixel.png?1 1x, /api/pixel.png?ü 2x"><picture><source srcset="/api/pixel.png?%2C"><img></picture>
<video poster="/api/pixel.png?poster"></video><audio src="/api/sound.wav#t=0"></audio>
<table background="/api/pixel.png?b"></table><input type="image" src="/api/pixel.png?i"></body>"""
AS_WRITTEN = """() => {
  const [picture, typed, untyped] = [document.images[0], ...document.querySelectorAll("link")];
  return [document.body.innerHTML.trim(), new URL(document.querySelector("video").poster).search,
    document.querySelector("source").getAttribute("srcset"), picture.outerHTML, picture.hasAttribute("srcset"),
    picture.srcset, typed.type, untyped.type, untyped.hasAttribute("type"), untyped.outerHTML];
}"""
WRITTEN = [
    NAMING.partition("<body>")[2].partition("</body>")[0],
    *("?poster", "/api/pixel.png?%2C"),
    '<img src="/api/pixel.png" alt="x">',
    *(False, "", "text/css", "", False),
    '<link rel="stylesheet" href="/api/color.css?2">',
]
LOADED = """() => document.images.length === 3 && [...document.images].every((one) => one.naturalWidth === 1)
  && document.querySelector("audio").duration > 0 && document.styleSheets.length === 2
  && getComputedStyle(document.body).color === 'rgb(1, 2, 3)'"""


async def test_files_that_stand_in_a_page_are_nothing_that_the_browser_tries(host: Host, tmp_path: Path) -> None:
    """Images and sheets of the backend load, the console is empty, and the page reads the URLs that it wrote."""
    await host.answers(
        "if (/css/.test(args.url)) return { bodyType: 'text', body: 'body { color: rgb(1, 2, 3) }',"
        " headers: { 'content-type': 'text/css' } };"
        "const [body, kind] = /wav/.test(args.url)"
        f" ? ['{b64encode(SOUND).decode()}', 'audio/wav'] : ['{PIXEL}', 'image/png'];"
        "return { bodyType: 'base64', body, headers: { 'content-type': kind } };"
    )
    tried: list[str] = []
    host.page.on("request", lambda request: tried.append(request.url))
    host.page.on("console", lambda message: tried.append(message.text) if message.type == "error" else None)
    frame = await show_page(host, tmp_path, NAMING)
    await frame.wait_for_function(LOADED)
    assert await frame.evaluate(AS_WRITTEN) == WRITTEN
    assert [line for line in tried if not line.startswith(("data:", "about:"))] == []


AGAIN = """async () => {
  const picture = new Image();
  const shown = [];
  for (const url of ["/api/pixel.png", "/api/pixel.png", "/api/pixel.png?2"]) {
    await new Promise((done) => Object.assign(picture, { onload: done, src: url }));
    shown.push(picture.getAttributeNode("srcset").nodeValue);
  }
  return new Set(shown).size;
}"""


async def test_a_picture_that_is_what_it_was_is_loaded_again(host: Host, tmp_path: Path) -> None:
    """Frames of a camera are an example: Firefox fires nothing for an unchanged value."""
    await host.answers(f"return {{ bodyType: 'base64', body: '{PIXEL}', headers: {{ 'content-type': 'image/png' }} }};")
    frame = await show_page(host, tmp_path, PAGE)
    assert await frame.evaluate(AGAIN) == 3


async def test_on_its_own_a_packed_page_loads_its_files_itself(page: Page, tmp_path: Path) -> None:
    """Without a host the browser loads them."""
    files = {
        "/": (pack_html(tmp_path, NAMING).encode(), "text/html"),
        "/api/color.css": (b"body { color: rgb(1, 2, 3) }", "text/css"),
        "/api/sound.wav": (SOUND, "audio/wav"),
    }

    async def serve(route: Route) -> None:
        text, kind = files.get(urlsplit(route.request.url).path, (b64decode(PIXEL), "image/png"))
        await route.fulfill(body=text, content_type=kind)

    await page.route("http://app.test/**", serve)
    await page.goto("http://app.test/")
    await page.wait_for_function(LOADED)
    assert await page.evaluate(AS_WRITTEN) == WRITTEN


PREVIEWS = """async ([pixel, sound]) => {
  const told = [];
  const blob = async (text, type) => (await fetch(`data:${type};base64,${text}`)).blob();
  const url = URL.createObjectURL(await blob(pixel, "image/png"));
  const end = (name, element) => new Promise((done) => {
    const hear = ({ type }) => done(told.push(`${name} ${type}`));
    for (const type of ["load", "loadedmetadata", "error"]) element.addEventListener(type, hear);
  });
  const [alone, decoded, inPage, broken] = [0, 0, 0, 0].map(() => document.createElement("img"));
  const heard = [end("alone", alone), end("page", inPage), end("broken", broken)];
  alone.src = url;
  inPage.setAttribute("src", url);
  broken.src = URL.createObjectURL(new Blob(["no picture"], { type: "image/png" }));
  document.body.append(inPage, broken);
  decoded.src = url;
  await decoded.decode();
  await Promise.all(heard);
  const written = document.createElement("div");
  document.body.append(written);
  written.innerHTML = `<img src="${url}">`;
  const later = written.firstChild;
  await end("HTML", later);
  const audio = new Audio();
  const played = end("audio", audio);
  audio.src = URL.createObjectURL(await blob(sound, "audio/wav"));
  await played;
  const same = [alone, decoded, inPage, later].every((one) => one.naturalWidth === 1 && one.src === url && !one.srcset
    && one.getAttribute("src") === url && one.outerHTML === `<img src="${url}">`);
  URL.revokeObjectURL(url);
  inPage.src = "/api/pixel.png?2";
  await new Promise((done) => (inPage.onload = done));
  return [told.sort(), same, audio.src.startsWith("blob:"), inPage.getAttribute("src")];
}"""


async def test_previews_that_the_host_refuses_are_shown(host: Host, tmp_path: Path) -> None:
    """Events and properties of `blob:` URLs are the same as in frames that admit them."""
    await host.answers(f"return {{ bodyType: 'base64', body: '{PIXEL}', headers: {{ 'content-type': 'image/png' }} }};")
    frame = await show_page(host, tmp_path, f"{PAGE}<script>URL.createObjectURL, decode(), Audio()</script>")
    assert await frame.evaluate(PREVIEWS, [PIXEL, b64encode(SOUND).decode()]) == [
        ["HTML load", "alone load", "audio loadedmetadata", "broken error", "page load", "page load"],
        True,
        True,
        "/api/pixel.png?2",
    ]
