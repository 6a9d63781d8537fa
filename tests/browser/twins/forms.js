/** A form whose answer goes to a frame of its own, so that the page stays; and what arrived. */
async function formed(html) {
  const stage = document.getElementById("stage");
  stage.innerHTML = `<iframe name="sink" style="display: none"></iframe>${html}`;
  return stage.querySelector("form");
}

async function arrived() {
  for (;;) {
    const sunk = await (await fetch("/api/sunk")).json();
    if (sunk.method) return sunk;
    await new Promise((go) => setTimeout(go, 20));
  }
}

const FIELDS = `<input name="a" value="1 2"><textarea name="t">x\ny</textarea><input type="checkbox" name="c" checked><input type="checkbox" name="d">
  <select name="s"><option value="v" selected></select><input name="off" value="x" disabled><input type="file" name="f">`;

twin("form: methods and encodings", async (see) => {
  for (const attributes of ['method="post"', 'method="get"', "", 'method="post" enctype="multipart/form-data"', 'method="post" enctype="text/plain"']) {
    const form = await formed(`<form action="/api/sink?q=1" target="sink" ${attributes}>${FIELDS}<button name="b" value="go">go</button></form>`);
    form.querySelector("button").click();
    see(attributes, await arrived());
  }
});

twin("form: what a submitter says", async (see) => {
  const form = await formed(`<form action="/nowhere" target="sink"><input name="a" value="1">
    <button name="b" value="2" formaction="/api/sink" formmethod="post" formenctype="multipart/form-data">go</button></form>`);
  form.requestSubmit(form.querySelector("button"));
  see(await arrived());
});

twin("form: the page sends it by itself", async (see) => {
  const form = await formed(`<form action="/api/sink" target="sink"><input name="a" value="1"><button name="b" value="2"><i>go</i></button><button type="button" id="no">no</button></form>`);
  for (const type of ["click", "submit"]) form.addEventListener(type, (event) => see(event.type, event.target.localName, event.submitter?.name ?? null, event.cancelable, event.bubbles));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector("i").click();
  form.querySelector("#no").click();
  form.requestSubmit();
  see([...new FormData(form)]);
});

twin("form: a click that is prevented or stopped", async (see) => {
  const form = await formed('<form action="/api/sink" target="sink" method="post"><input name="a" value="1"><button>go</button></form>');
  const button = form.querySelector("button");
  button.addEventListener("click", (event) => event.preventDefault(), { once: true });
  form.addEventListener("submit", () => see("submitted"));
  button.click();
  await new Promise((go) => setTimeout(go, 50));
  see("after prevented");
  form.addEventListener("click", (event) => event.stopPropagation(), { once: true });
  button.click();
  see((await arrived()).body);
  button.setAttribute("onclick", "return false");
  button.click();
  await new Promise((go) => setTimeout(go, 50));
  see("after return false");
});

twin("form: validation", async (see) => {
  const form = await formed('<form action="/api/sink" target="sink" method="post"><input name="a" required><button>go</button><button formnovalidate>anyway</button></form>');
  form.addEventListener("invalid", ({ target }) => see("invalid", target.name), true);
  form.addEventListener("submit", (event) => (event.preventDefault(), see("submit")));
  form.querySelector("button").click();
  form.requestSubmit();
  form.querySelectorAll("button")[1].click();
  form.noValidate = true;
  form.querySelector("button").click();
});

twin("form: submit() asks nobody", async (see) => {
  const form = await formed('<form action="/api/sink" target="sink" method="post"><input name="a" required></form>');
  form.addEventListener("submit", () => see("submit"));
  form.submit();
  see((await arrived()).body);
});

twin("form: what requestSubmit refuses", async (see) => {
  const form = await formed('<form><input name="a"></form>');
  see(await failure(() => form.requestSubmit(form.querySelector("input"))), await failure(() => form.requestSubmit(Object.assign(document.createElement("button"), { type: "submit" }))));
});

twin("form: a dialog", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<dialog><form method="dialog"><button value="yes">yes</button></form></dialog>';
  const dialog = stage.querySelector("dialog");
  dialog.show();
  dialog.querySelector("button").click();
  await once(dialog, "close");
  see(dialog.open, dialog.returnValue);
});
