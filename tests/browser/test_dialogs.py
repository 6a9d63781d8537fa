"""`alert`, `confirm` and `prompt` in a view: no script can block on a dialog there, but the person's answer arrives."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.browser.runtime_host import Host, show_page

PAGE = """<!doctype html><p id=out></p><button id=ask>Ask</button>
<form onsubmit="if (confirm('Send?')) say('sent'); return false"><input id=text></form>
<script>
  const say = (what) => out.append(`${what};`);
  ask.onclick = ({ target }) => {
    const name = prompt("Your name?", "An");
    if (name === null) return say(`nobody at ${target.id}`);
    if (!confirm(`Are you ${name}?`)) return;
    alert("Welcome");
    say(name);
  };
</script>"""


async def test_who_is_asked_answers(host: Host, tmp_path: Path) -> None:
    """The event is dispatched again, and each call returns its answer; a dismissed dialog means no."""
    frame = await show_page(host, tmp_path, PAGE)
    dialog, out = frame.locator("webmcp-gateway-dialog"), frame.locator("#out")
    await frame.locator("#ask").click()
    await expect(out).to_have_text("nobody at ask;")
    await host.page.keyboard.press("End")
    await host.page.keyboard.type("na")
    await host.page.keyboard.press("Enter")  # her name
    await expect(dialog).to_have_count(1)
    await host.page.keyboard.press("Enter")  # that she is that
    await expect(out).to_have_text("nobody at ask;Anna;")
    await expect(dialog).to_have_count(1)
    await host.page.keyboard.press("Enter")  # her welcome
    await expect(dialog).to_have_count(0)
    await frame.locator("#text").press("Enter")
    await expect(dialog).to_have_count(1)
    await host.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(out).to_have_text("nobody at ask;Anna;")
    await frame.locator("#text").press("Enter")
    await expect(dialog).to_have_count(1)
    await host.page.keyboard.press("Enter")
    await expect(out).to_have_text("nobody at ask;Anna;sent;")


async def test_where_nothing_can_come_again_the_console_says_so(host: Host, tmp_path: Path) -> None:
    """A call outside of an event, for instance after a request, returns false."""
    frame = await show_page(host, tmp_path, "<!doctype html><script>const ask = () => confirm('Really?')</script>")
    async with host.page.expect_console_message(lambda message: "confirm() cannot wait" in message.text):
        assert await frame.evaluate("ask()") is False
    await expect(frame.locator("webmcp-gateway-dialog")).to_have_count(1)


EACH = """<!doctype html><p id=out></p><button id=ask>Ask</button><script>
  const say = (what) => out.append(`${what};`);
  addEventListener("keydown", ({ key }) => say(key));
  ask.onclick = () => {
    const name = prompt("Your name?");
    if (!name) return alert("None?");
    const gone = ["a", "b", "c"].filter(() => confirm("Away?"));
    say(name + gone);
  };
</script>"""


async def test_each_question_is_asked_in_its_turn(host: Host, tmp_path: Path) -> None:
    """Dialogs caused by an answer follow it, and each answer belongs to one call, even if the texts are equal."""
    frame = await show_page(host, tmp_path, EACH)
    dialog, out = frame.locator("webmcp-gateway-dialog"), frame.locator("#out")
    await frame.locator("#ask").click()
    for key in ("Escape", "Enter"):  # no name, and the message about that
        await expect(dialog).to_have_count(1)
        await host.page.keyboard.press(key)
    await expect(dialog).to_have_count(0)
    await frame.locator("#ask").click()
    await expect(dialog).to_have_count(1)
    await host.page.keyboard.type("A")
    for key in ("Enter", "Enter", "Escape", "Enter"):
        await expect(dialog).to_have_count(1)
        await host.page.keyboard.press(key)
    await expect(dialog).to_have_count(0)
    await expect(out).to_have_text("A;Aa;Aa,c;")


FORM = """<!doctype html><form method=post action=/api/orders><input name=gift><button>Order</button></form>
<script>document.forms[0].onsubmit = ({ target }) => { target.gift.value = confirm("A gift?"); };</script>"""


async def test_a_submission_waits_for_the_answer_and_goes_once(host: Host, tmp_path: Path) -> None:
    """The form is submitted once, also after a no."""
    await host.in_our_host()
    await host.answers("return {}")
    frame = await show_page(host, tmp_path, FORM)
    dialog = frame.locator("webmcp-gateway-dialog")
    for key in ("Enter", "Escape"):
        await frame.locator("button").click()
        await expect(dialog).to_have_count(1)
        await host.page.keyboard.press(key)
        await expect(dialog).to_have_count(0)
    await host.until("host.calls('http_request').length >= 2")
    await host.settled()
    assert await host.run("() => host.calls('http_request').map(({ body }) => body)") == ["gift=true", "gift=false"]


CONTROLS = """<!doctype html><p id=out></p><input id=box type=checkbox><input id=careful type=checkbox>
<select id=choice><option>tea<option>coffee</select>
<script>
  const say = (what) => out.append(`${what};`);
  box.onclick = () => { if (confirm("Really?")) say(box.checked); };
  careful.onchange = () => {
    if (confirm("Really?")) say(careful.checked);
    else careful.checked = !careful.checked;
  };
  choice.onchange = () => {
    if (confirm("Really?")) say(choice.value);
    else choice.value = "tea";
  };
</script>"""


async def test_a_control_that_asks_is_what_the_person_made_of_it(host: Host, tmp_path: Path) -> None:
    """The control keeps the person's value, also if the page resets it at first; after a real no it stays reset."""
    frame = await show_page(host, tmp_path, CONTROLS)
    dialog, out = frame.locator("webmcp-gateway-dialog"), frame.locator("#out")
    for control in ("#box", "#careful"):
        await frame.locator(control).click()
        await host.page.keyboard.press("Enter")
        await expect(frame.locator(control)).to_be_checked()
    await frame.locator("#choice").select_option("coffee")
    await host.page.keyboard.press("Enter")
    await expect(out).to_have_text("true;true;coffee;")
    await expect(frame.locator("#choice")).to_have_value("coffee")
    await frame.locator("#careful").click()
    await expect(dialog).to_have_count(1)
    await host.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await expect(frame.locator("#careful")).to_be_checked()
    await expect(out).to_have_text("true;true;coffee;")


async def test_a_question_that_the_page_took_away_holds_no_other_up(host: Host, tmp_path: Path) -> None:
    """After the dialog's removal the next call shows one."""
    frame = await show_page(host, tmp_path, PAGE)
    await frame.locator("#ask").click()
    await expect(frame.locator("webmcp-gateway-dialog")).to_have_count(1)
    await frame.evaluate("document.querySelector('webmcp-gateway-dialog').remove()")
    await frame.locator("#ask").click()
    await expect(frame.locator("webmcp-gateway-dialog")).to_have_count(1)
    for _ in ("her name", "that she is that"):
        await expect(frame.locator("webmcp-gateway-dialog")).to_have_count(1)
        await host.page.keyboard.press("Enter")
    await expect(frame.locator("#out")).to_have_text("nobody at ask;nobody at ask;An;")
