/** A form whose answer goes to a frame of its own, so that the page stays; and what arrived. */
async function formed(html) {
  const stage = document.getElementById("stage");
  stage.innerHTML = `<iframe name="sink" style="display: none"></iframe>${html}`;
  return stage.querySelector("form");
}

async function arrived() {
  for (;;) {
    const sunk = await (await fetch("/api/sunk")).json();
    // Natively it is asked for something to show.
    delete sunk.headers?.accept;
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

twin("form: of submissions at one time the last is sent", async (see) => {
  const counted = async (name) => (await fetch(`/api/asked?url=${encodeURIComponent(`/api/sink?${name}`)}`)).json();
  const attempts = {
    "a click that submits": (form, to) => {
      form.onclick = () => (to("first"), form.submit(), to("last"));
      form.querySelector("button").click();
    },
    "a listener that submits": (form, to) => {
      form.onsubmit = () => (to("first"), form.submit(), to("last"));
      form.requestSubmit();
    },
    "one that submits in its place": (form, to) => {
      form.onsubmit = (event) => (event.preventDefault(), to("last"), form.submit());
      form.querySelector("button").click();
    },
    "twice": (form, to) => (to("first"), form.submit(), to("last"), form.submit()),
    "changed afterwards": (form, to) => {
      to("last");
      form.submit();
      to("first");
      form.elements.a.value = "changed";
      form.method = "get";
    },
  };
  for (const [name, run] of Object.entries(attempts)) {
    const form = await formed(`<form target="sink" method="post"><input name="a" value="${name}"><button>go</button></form>`);
    // Both twins ask one backend.
    const tag = Math.random();
    const place = (which) => `/api/sink?${tag}-${which}`;
    run(form, (which) => (form.action = place(which)));
    const { query, body } = await arrived();
    see(name, query.replace(tag, ""), atob(body));
    await new Promise((go) => setTimeout(go, 50));
    see(await Promise.all(["first", "last"].map((which) => counted(place(which).slice("/api/sink?".length)))));
  }
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
  dialog.addEventListener("formdata", () => see("formdata"));
  dialog.querySelector("button").click();
  await once(dialog, "close");
  see(dialog.open, dialog.returnValue);
  dialog.show();
  dialog.querySelector("form").requestSubmit();
  await once(dialog, "close");
  see(dialog.open, dialog.returnValue);
  dialog.show();
  dialog.returnValue = "before";
  dialog.querySelector("button").removeAttribute("value");
  dialog.querySelector("button").click();
  await once(dialog, "close");
  see(dialog.open, dialog.returnValue);
});

twin("form: clicks that are told of in every way, and what listeners make of the button", async (see) => {
  const stop = ({ prototype } = Event) => [prototype.stopPropagation, prototype.stopImmediatePropagation];
  const ways = {
    stopped: (button, form) => form.addEventListener("click", (event) => (event.stopImmediatePropagation(), event.stopPropagation())),
    "stopped by the class": (button, form) => stop().map((how) => form.addEventListener("click", (event) => how.call(event))),
    "stopped, then prevented": (button) => (button.onclick = (event) => (event.stopPropagation(), event.preventDefault())),
    "stopped, and false given": (button) => button.setAttribute("onclick", "event.stopPropagation(); return false"),
    "stopped and prevented in the older way": (button) => (button.onclick = (event) => ((event.cancelBubble = true), (event.returnValue = false), undefined)),
    "stopped, then prevented by the class": (button) => (button.onclick = (event) => (event.stopPropagation(), Event.prototype.preventDefault.call(event))),
    "stopped, and something given": (button) => (button.onclick = (event) => (event.stopPropagation(), 0)),
    "made a submit button": (button) => ((button.type = "button"), (button.onclick = () => void (button.type = "submit"))),
    "made another": (button) => (button.onclick = () => void (button.type = "button")),
    "put into the form": (button, form) => (form.after(button), (button.onclick = () => void form.append(button))),
    "made the form's": (button, form) => ((form.id = `f${Math.random()}`), form.after(button), (button.onclick = () => void button.setAttribute("form", form.id))),
    "taken out": (button) => (button.onclick = () => void button.remove()),
    "turned off": (button) => (button.onclick = () => void (button.disabled = true)),
    "off with its fields": (button, form) => ((form.innerHTML = "<fieldset disabled></fieldset>"), form.firstChild.append(button)),
    "a checkbox before": (button, form) => ((form.innerHTML = '<input type="checkbox" name="b">'), (form.firstChild.onclick = ({ target }) => void (target.type = "submit"))),
    "submitted again by who hears of it": (button, form) => form.addEventListener("submit", () => form.requestSubmit(button)),
    "sent by who hears that a field is wrong": (button, form) => ((form.elements.a.required = true), (form.elements.a.value = ""), (form.elements.a.oninvalid = () => form.requestSubmit())),
    "gone": (button, form) => form.remove(),
  };
  const told = Object.entries(ways).map(([name, way]) => {
    const stage = document.getElementById("stage");
    const form = stage.appendChild(document.createElement("form"));
    form.innerHTML = '<input name="a" value="1"><button name="b">go</button>';
    const button = form.querySelector("button");
    const log = [name];
    for (const type of ["click", "submit", "invalid"]) form.addEventListener(type, (event) => log.push([type, event.submitter?.name]));
    way(button, form);
    form.addEventListener("submit", (event) => event.preventDefault());
    const click = new MouseEvent("click", { bubbles: true, cancelable: true });
    const went = (form.querySelector("button") ?? (button.isConnected ? button : form.firstChild)).dispatchEvent(click);
    log.splice(1, 0, went, click.defaultPrevented, click.returnValue, Object.keys(click));
    if (!form.isConnected) form.submit();
    return log;
  });
  await new Promise((go) => setTimeout(go, 50));
  for (const log of told) see(log);
});

twin("form: a button that is gone once its form is submitted", async (see) => {
  const ways = {
    removed: ({ submitter }) => submitter.remove(),
    replaced: ({ target }) => (target.innerHTML = '<input name="n" value="9">'),
    "another's": ({ submitter, target }) => target.after(submitter),
    "of another type": ({ submitter }) => (submitter.type = "button"),
    off: ({ submitter }) => (submitter.disabled = true),
  };
  for (const [name, way] of Object.entries(ways)) {
    const form = await formed('<form action="/nowhere" target="sink" method="post"><input name="a" value="1"><button name="b" value="2" formaction="/api/sink?by=button">go</button></form>');
    form.onsubmit = (event) => void way(event);
    form.querySelector("button").click();
    const { method, query, body } = await arrived();
    see(name, method, query, body);
  }
});

twin("form: what hears of its data and sends it again", async (see) => {
  for (const how of ["requestSubmit", "submit"]) {
    const form = await formed('<form action="/api/sink" target="sink" method="post"><input name="a" value="1"></form>');
    form.onsubmit = () => see("submit");
    form.onformdata = () => form[how]();
    form.requestSubmit();
    see(how, (await arrived()).body);
  }
});

twin("form: the person's keys and clicks", async (see) => {
  const form = await formed(`<form id="keyed" action="/api/sink" target="sink" method="post"><input id="a" name="a" value="1"><textarea id="t" name="t"></textarea>
    <input id="c" type="checkbox" name="c"><button id="go" name="b" value="first">go</button><button name="b" value="second">go</button></form>`);
  for (const type of ["click", "submit"]) form.addEventListener(type, ({ type, target, submitter, isTrusted }) => see(type, target.id, submitter?.value ?? null, type === "click" && isTrusted));
  await act("#a", "Enter");
  see((await arrived()).body);
  await act("#c", " ");
  await act("#go", " ");
  see((await arrived()).body);
  await act("#t", "Enter");
  see(form.elements.t.value);
  await act("button:nth-of-type(2)", "click");
  see((await arrived()).body);
  form.elements.a.addEventListener("keydown", (event) => event.preventDefault());
  await act("#a", "Enter");
  see("over");
});

twin("form: Enter where there is no button, or one that is off", async (see) => {
  for (const fields of ['<input id="a" name="a">', '<input id="a" name="a"><input name="b">', '<input id="a" name="a"><input name="c" type="checkbox">', '<input id="a" name="a"><button disabled>go</button>',
    '<input id="a" name="a"><button type="button">go</button>', '<input id="a" name="a" type="search"><input type="hidden" name="h" value="2">', '<input id="a" type="date">', '<input id="a" name="a"><input type="image" name="i" alt="go">', '<input id="a" onkeypress="return false">']) {
    const form = await formed(`<form action="/api/echo" target="sink">${fields}</form>`);
    form.addEventListener("submit", (event) => (event.preventDefault(), see("submit", event.submitter)));
    for (const type of ["keydown", "keypress"]) form.addEventListener(type, () => see(type));
    await act("#a", "Enter");
    see(fields);
  }
});

twin("form: what belongs to it, and what does not", async (see) => {
  const form = await formed(`<input form="f" name="outside" value="1"><form id="f" action="/api/sink" target="sink" method="post">
    <input name="r" type="radio" value="1"><input name="r" type="radio" value="2" checked><select name="m" multiple><option selected>x<option>y<option selected>z</select>
    <fieldset disabled><input name="off" value="1"></fieldset><input name="_charset_" type="hidden"><input name="" value="nameless"><output name="o">o</output>
    <input type="submit" name="s" value="other"><input type="reset" name="x"><datalist><input name="listed" value="1"></datalist></form><button form="f" name="b" value="out" formaction="/api/sink?by=out">go</button>`);
  form.addEventListener("formdata", ({ formData }) => formData.append("added", "later"));
  document.querySelector("button[form=f]").click();
  see(await arrived());
  form.reset();
  form.querySelector("[name=s]").click();
  see((await arrived()).body);
});

twin("form: a file, and a picture for a button", async (see) => {
  const form = await formed('<form action="/api/sink" target="sink" method="post" enctype="multipart/form-data"><input type="file" name="f" multiple><input type="image" name="at" alt="go"></form>');
  const files = new DataTransfer();
  for (const name of ["a.txt", "ü.txt"]) files.items.add(new File([name], name, { type: "text/plain" }));
  form.elements.f.files = files.files;
  form.querySelector("[type=image]").click();
  see(await arrived());
  form.enctype = "";
  form.querySelector("[type=image]").click();
  see(await arrived());
});

twin("form: lines end in CRLF, in names, values and the names of files", async (see) => {
  for (const enctype of ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data"]) {
    const form = await formed(`<form action="/api/sink" target="sink" method="post" enctype="${enctype}"></form>`);
    form.addEventListener("formdata", ({ formData }) => {
      for (const lines of ["a\rb", "a\nb", "a\r\nb", "a\n\rb", 'a\\"b']) {
        formData.append(lines, lines);
        if (enctype !== "multipart/form-data") formData.append("file", new File(["x"], lines));
      }
    });
    form.requestSubmit();
    see(enctype, await arrived());
  }
});

/** What names, values and names of files may hold: what ends lines, is special in an encoding, or is in none. */
const CHARACTERS = [..."\0\b\t\v\f\n\r\x1b\x7f\"\\'%&=+;:,.-_~*()<>[]{}/?#@!$^`| \u0080\u00a0\u00e9\u2028\ufeff\uffff\u2605\u{1f31f}", "\r\n", "\n\r", "\n\n", "\ud800", "\udc00", "%0A", "%22", "&#9733;", "a\u0308"];

for (const encoding of ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"]) {
  twin(`form: names and values of every character as ${encoding}`, async (see) => {
    const form = await formed(`<form action="/api/sink?raw" target="sink" method="post" enctype="${encoding}"></form>`);
    for (const [at, text] of CHARACTERS.entries()) {
      const files = new DataTransfer();
      files.items.add(new File([`f${text}f`], `f${text}f`, { type: at % 2 ? "text/plain" : "" }));
      for (const [type, value] of [["hidden", `v${text}v`], ["text", text], ["file"]]) {
        const input = form.appendChild(document.createElement(type === "text" ? "textarea" : "input"));
        if (type !== "text") input.type = type;
        input.name = `n${text}n`;
        if (value === undefined) input.files = files.files;
        else input.value = value;
      }
    }
    const data = [...new FormData(form)].map(([name, value]) => [name, typeof value === "string" ? value : value.name]);
    see(JSON.stringify(data));
    form.submit();
    see(await arrived());
    if (encoding === "text/plain") return;
    const body = encoding.startsWith("multipart") ? new FormData(form) : new URLSearchParams(data);
    see(await (await fetch("/api/echo?raw", { method: "POST", body })).json());
    form.method = "get";
    form.submit();
    see((await arrived()).query);
  });
}
