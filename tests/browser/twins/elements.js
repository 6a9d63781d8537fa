const loaded = (element) => new Promise((resolve) => { for (const type of ["load", "error"]) element.addEventListener(type, () => resolve(type), { once: true }); });

twin("element: pictures, however they come", async (see) => {
  const stage = document.getElementById("stage");
  const made = new Image();
  made.src = "/api/pixel.png";
  see(await loaded(made), made.naturalWidth, made.src);
  const set = document.createElement("img");
  set.setAttribute("src", "/api/pixel.png");
  stage.append(set);
  see(await loaded(set), set.naturalWidth, set.complete);
  stage.innerHTML = '<div><img id="inner" src="/api/pixel.png" alt="x"></div>';
  const inner = stage.querySelector("img");
  see(await loaded(inner), inner.naturalWidth);
  inner.src = "/api/pixel.png?2";
  see(await loaded(inner), inner.src);
  inner.src = "/api/status/404";
  see(await loaded(inner));
  inner.src = "data:image/gif;base64,R0lGODlhAQABAAAAACw=";
  await loaded(inner);
  see(inner.src.slice(0, 15));
});

twin("element: what the page was written with", async (see) => {
  for (const still of document.querySelectorAll(".still")) {
    while (!still.naturalWidth) await new Promise((go) => setTimeout(go, 20));
    see(still.naturalWidth, still.src, still.complete);
  }
});

twin("element: shadow roots that HTML declares", async (see) => {
  const host = document.getElementById("declared");
  const seen = async (picture) => see(await holds(() => picture.naturalWidth), picture.src, picture.outerHTML);
  const { shadowRoot: root } = host;
  await seen(root.querySelector("img"));
  await seen(root.querySelector("div").shadowRoot.querySelector("img"));
  see(await painted(root.querySelector("p")), root.childNodes.length, root.textContent.includes("a"));
  root.querySelector("p").innerHTML = '<img src="/api/pixel.png?inside">';
  await seen(root.querySelector("p img"));
  const stage = document.getElementById("stage");
  const told = [];
  customElements.define("x-told", class extends HTMLElement { connectedCallback() { told.push("in"); } disconnectedCallback() { told.push("out"); } });
  stage.setHTMLUnsafe('<p><template shadowrootmode="open"><img src="/api/pixel.png?unsafe"><x-told></x-told><iframe srcdoc="a"></iframe></template></p>');
  const framed = stage.firstChild.shadowRoot.querySelector("iframe");
  framed.addEventListener("load", () => told.push("load"));
  await seen(stage.firstChild.shadowRoot.querySelector("img"));
  await holds(() => told.includes("load"));
  see(told, framed.contentWindow.length);
  see(await failure(() => host.attachShadow({ mode: "closed" })));
  see(host.attachShadow({ mode: "open" }) === root, root.childNodes.length);
  root.innerHTML = '<img src="/api/pixel.png?again">';
  await seen(root.querySelector("img"));
  see(await failure(() => host.attachShadow({ mode: "open" })));
});

twin("element: scripts by the type of their file", async (see) => {
  const types = [
    ...["text/javascript", "text/csv", "TEXT/CSV; a=b", "text/csvx", "text/plain", "text/html", "application/json", "application/octet-stream"],
    ...["image/png", "audio/x", "video/mp4; codecs=a", "application/image", "font/woff", "x/y", "none"],
  ];
  for (const kind of ["", "module"]) {
    for (const type of kind ? ["application/x-javascript; charset=utf-8", "text/ecmascript", "text/javascripts", ...types] : types) {
      const script = document.createElement("script");
      Object.assign(script, { type: kind, src: `/api/typed?${new URLSearchParams({ type, body: "window.ran = (window.ran ?? 0) + 1" })}` });
      delete window.ran;
      document.getElementById("stage").append(script);
      see(kind, type, await loaded(script), window.ran);
    }
  }
});

twin("element: scripts and sheets of data: and blob: URLs", async (see) => {
  const stage = document.getElementById("stage");
  const urlOf = (text, type) => URL.createObjectURL(new Blob([text], { type }));
  const ran = window.ranLocally = [];
  const scripts = [
    "data:text/javascript,ranLocally.push(document.currentScript.id, this === window)", "data:text/csv,ranLocally.push('never')",
    `data:text/javascript;base64,${btoa("ranLocally.push('base64')")}`, urlOf("ranLocally.push('blob')", "text/javascript"),
    urlOf("ranLocally.push('untyped')"), urlOf("ranLocally.push('never')", "image/png"), "data:text/javascript,throw new Error('own')", "data:broken",
  ];
  for (const [at, src] of scripts.entries()) {
    const script = document.createElement("script");
    script.id = `local${at}`;
    const heard = loaded(script);
    if (at % 2) stage.append(script);
    script.src = src;
    stage.append(script);
    see(at, await heard, script.src.slice(0, 5), script.getAttribute("src") === src, script.text);
  }
  const ordered = ["1", "2", "3"].map((name) => Object.assign(document.createElement("script"), { async: false, src: `data:text/javascript,ranLocally.push(${name})` }));
  stage.append(...ordered);
  await Promise.all(ordered.map(loaded));
  see(ran);
  const paragraph = stage.appendChild(document.createElement("p"));
  for (const href of ["data:text/css,p { color: rgb(1, 2, 3) }", urlOf("p { color: rgb(4, 5, 6) }", "text/css")]) {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href });
    stage.append(link);
    see(await loaded(link), getComputedStyle(paragraph).color, link.sheet instanceof CSSStyleSheet, link.getAttribute("href") === href);
    link.remove();
  }
});

twin("element: a base without a URL", async (see) => {
  const base = document.createElement("base");
  base.id = "base";
  document.head.append(base);
  see(base.href === document.baseURI, base.getAttribute("href"), document.querySelectorAll("base").length);
  base.remove();
});

twin("element: srcset", async (see) => {
  const picture = new Image();
  // Of those that it has already, a browser takes the densest.
  picture.srcset = "/api/pixel.png?set1 1x, /api/pixel.png?set2 2x";
  see(await loaded(picture), picture.naturalWidth, picture.srcset);
});

twin("element: a script that is added", async (see) => {
  window.loaded = 0;
  const script = document.createElement("script");
  script.src = "/api/script.js";
  document.head.append(script);
  see(await loaded(script), window.loaded, script.src);
  const broken = document.createElement("script");
  broken.src = "/api/status/404";
  document.head.append(broken);
  see(await loaded(broken));
  script.remove();
});

twin("element: a sheet, and what it names", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<p id="styled">x</p>';
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = "/api/theme.css";
  document.head.append(link);
  see(await loaded(link), getComputedStyle(stage.firstChild).color, await painted(stage.firstChild));
  link.remove();
  await new Promise((go) => setTimeout(go, 20));
  see(getComputedStyle(stage.firstChild).color);
});

twin("element: url() in styles", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<p style="color: red; background: url(/api/pixel.png)">x</p><style>#two { background: url("/api/pixel.png?3") }</style><p id="two">y</p>';
  for (const one of stage.querySelectorAll("p")) see(await painted(one));
  see(stage.firstChild.style.color);
});

/** Once the picture behind an element is one that a page may load there: natively of its own site, in a view in the style itself. */
async function painted(element) {
  const loads = () => [location.origin, "data:"].some((from) => getComputedStyle(element).backgroundImage.startsWith(`url("${from}`));
  while (!loads()) await new Promise((go) => setTimeout(go, 20));
  return true;
}

twin("element: pictures that nobody sees come tell of no error before", async (see) => {
  const stage = document.getElementById("stage");
  const holder = document.createElement("div");
  const told = [];
  const watch = (name, picture) => {
    for (const type of ["load", "error"]) picture.addEventListener(type, () => told.push([name, type, picture.naturalWidth]));
    return picture;
  };
  holder.innerHTML = '<img src="/api/pixel.png?hidden"><img srcset="/api/pixel.png?hidden 1x"><picture><source srcset="/api/pixel.png?hidden 1x"><img></picture>';
  for (const [name, picture] of holder.querySelectorAll("img").entries()) watch(name, picture);
  stage.innerHTML = '<picture><source srcset="/api/pixel.png?of-source"><img></picture><picture><source srcset="/api/pixel.png?of-source"><img src="/api/pixel.png?of-img"></picture><picture><source srcset="/api/status/404"><img></picture>';
  for (const [name, picture] of stage.querySelectorAll("img").entries()) watch(`shown ${name}`, picture);
  const inert = new DOMParser().parseFromString('<img src="/api/pixel.png?inert">', "text/html");
  watch("inert", inert.querySelector("img"));
  see(await holds(() => told.length >= 6), told.sort(), [...holder.querySelectorAll("img"), ...stage.querySelectorAll("img")].map(({ complete }) => complete));
});

twin("element: in pieces that come later", async (see) => {
  const stage = document.getElementById("stage");
  stage.insertAdjacentHTML("beforeend", '<picture><source srcset="/api/pixel.png?s 1x"><img id="p" src="/api/status/404"></picture>');
  const pictured = stage.querySelector("#p");
  while (!pictured.naturalWidth) await new Promise((go) => setTimeout(go, 20));
  see(pictured.naturalWidth);
  const template = document.createElement("template");
  template.innerHTML = '<p><img src="/api/pixel.png?t"></p>';
  const copy = document.importNode(template.content, true).querySelector("img");
  stage.append(copy);
  see(await loaded(copy), copy.naturalWidth, copy.src, copy.getAttribute("alt"));
  const cloned = copy.cloneNode();
  stage.append(cloned);
  while (!cloned.naturalWidth) await new Promise((go) => setTimeout(go, 20));
  see(cloned.naturalWidth);
  const button = Object.assign(document.createElement("input"), { type: "image", src: "/api/pixel.png?b" });
  stage.append(button);
  see(await loaded(button), button.src);
  const handled = new Image();
  const heard = new Promise((resolve) => (handled.onload = ({ type, target }) => resolve([type, target === handled, handled.complete])));
  handled.src = "/api/pixel.png?o";
  see(await heard, await failure(handled.decode()));
  const root = stage.appendChild(document.createElement("div")).attachShadow({ mode: "open" });
  root.innerHTML = 'text <img src="/api/pixel.png?r">';
  while (!root.querySelector("img").naturalWidth) await new Promise((go) => setTimeout(go, 20));
  see(root.textContent);
});

twin("element: styles that come later", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<p id="one">1</p><p id="two">2</p><p id="three">3</p>';
  const [one, two, three] = stage.children;
  one.style.backgroundImage = "url(/api/pixel.png?one)";
  see(await painted(one));
  const sheet = document.createElement("style");
  stage.append(sheet);
  sheet.textContent = "#two { background-image: url('/api/pixel.png?two') }";
  see(await painted(two));
  sheet.append("#three { background-image: url(/api/pixel.png?three) }");
  see(await painted(three), await painted(two));
  one.setAttribute("style", "color: red");
  see(getComputedStyle(one).backgroundImage, one.style.color);
});

twin("element: rules that scripts write", async (see) => {
  const stage = document.getElementById("stage");
  const names = ["inserted", "nested", "replaced", "replacing", "moving", "styled", "set", "within", "added"];
  stage.innerHTML = names.map((name) => `<p id="${name}">${name}</p>`).join("");
  const written = document.createElement("style");
  stage.append(written);
  const at = written.sheet.insertRule("#inserted { background: url(/api/pixel.png?inserted) no-repeat }");
  see(at, written.sheet.cssRules.length);
  const media = written.sheet.cssRules[written.sheet.insertRule("@media all { }")];
  media.insertRule("#nested { background-image: url('/api/pixel.png?nested') }");
  written.sheet.insertRule("@keyframes moves { from { background-image: url(/api/pixel.png?from) } to { background-image: url(/api/pixel.png?from) } }");
  see(written.sheet.addRule("#added", "background: url(/api/pixel.png?added)"));
  const made = new CSSStyleSheet();
  document.adoptedStyleSheets = [made];
  made.replaceSync("#replaced { background: url(/api/pixel.png?replaced) } #moving { animation: moves 1s } #styled, #set, #inner { color: blue }");
  const other = new CSSStyleSheet();
  document.adoptedStyleSheets.push(other);
  see((await other.replace("#replacing { & { background: url(/api/pixel.png?replacing) } }")) === other);
  const held = made.cssRules[2];
  held.style.backgroundImage = "url(/api/pixel.png?styled)";
  const root = document.getElementById("within").attachShadow({ mode: "open" });
  root.adoptedStyleSheets = [made];
  root.innerHTML = '<p id="inner">inner</p><img src="/api/pixel.png?shadow"><p id="own" style="background: url(/api/pixel.png?own)">own</p>';
  for (const name of names) if (name !== "within") see(name, await painted(document.getElementById(name)));
  see(await painted(root.getElementById("inner")), await painted(root.getElementById("own")), made.cssRules[2] === held, held.style.color);
  const picture = root.querySelector("img");
  while (!picture.naturalWidth) await new Promise((go) => setTimeout(go, 20));
  see(picture.naturalWidth, picture.src);
  for (const wrong of [() => written.sheet.insertRule("{"), () => written.sheet.insertRule("p { }", 99), () => made.insertRule("@import 'x.css'")]) see(await failure(wrong));
  document.adoptedStyleSheets = [];
});

/** Once it holds; false where it does not in time. */
async function holds(condition) {
  for (let left = 200; left; left--) {
    if (condition()) return true;
    await new Promise((go) => setTimeout(go, 20));
  }
  return false;
}

twin("element: what a page reads of what it wrote", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<svg width="1" height="1"><image id="svg" width="1" height="1"/></svg><video poster="/api/pixel.png?poster"></video><img id="pair">';
  const picture = new Image();
  picture.src = "/api/pixel.png?read";
  see(picture.getAttribute("src"), picture.hasAttribute("src"), await loaded(picture), picture.getAttribute("src"), picture.getAttribute("SRC"), picture.src);
  picture.removeAttribute("src");
  see(picture.getAttribute("src"), picture.hasAttribute("src"), picture.src);
  picture.src = "/api/pixel.png?slow";
  picture.setAttribute("src", "/api/pixel.png?quick");
  see(await loaded(picture), picture.src);
  see(stage.querySelector("video").poster, stage.querySelector("video").getAttribute("poster"));
  const drawn = stage.querySelector("#svg");
  drawn.setAttributeNS("http://www.w3.org/1999/xlink", "xlink:href", "/api/pixel.png?xlink");
  see(await loaded(drawn));
  drawn.removeAttribute("xlink:href");
  see(drawn.getAttribute("xlink:href"), drawn.getAttribute("href"), drawn.href.baseVal);
  const pair = stage.querySelector("#pair");
  pair.setAttributeNS(null, "src", "/api/pixel.png?ns");
  see(await loaded(pair), pair.naturalWidth);
  const wide = new Image();
  wide.srcset = "/api/pixel.png?a,b 1x, /api/pixel.png?c 2x, /api/status/404 3x";
  see(await loaded(wide), wide.naturalWidth);
  const own = new Image();
  own.srcset = "data:image/gif;base64,R0lGODlhAQABAAAAACw= 1x, data:image/gif;base64,R0lGODlhAQABAAAAACw=#2 2x";
  see(await loaded(own), own.srcset, own.outerHTML);
  own.srcset = "/";
  see(await loaded(own), own.srcset);
  const broken = new Image();
  broken.srcset = "/api/status/404 1x, /api/pixel.png?unseen 2x";
  see(await loaded(broken));
});

twin("element: links that are loaded ahead, and changed", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<p id="styled">x</p>';
  const applied = (wanted) => holds(() => (getComputedStyle(stage.firstChild).color === "rgb(1, 2, 3)") === wanted);
  const link = (values) => document.head.appendChild(Object.assign(document.createElement("link"), values));
  for (const as of ["image", "style", "script"]) {
    const ahead = link({ rel: "preload", as, href: `/api/${{ image: "pixel.png", style: "theme.css", script: "script.js" }[as]}?${as}` });
    see(as, await loaded(ahead), ahead.href);
    ahead.remove();
  }
  see(await loaded(link({ rel: "preload", as: "style", href: "/api/status/404" })));
  const later = link({ rel: "preload", as: "style", href: "/api/theme.css?later", onload: () => { later.onload = null; later.rel = "stylesheet"; } });
  see(await applied(true));
  later.remove();
  see(await applied(false));
  const printed = link({ rel: "stylesheet", media: "print", href: "/api/theme.css?print", onload: () => (printed.media = "all") });
  see(await applied(true));
  printed.media = "print";
  see(await applied(false));
  printed.media = "all";
  see(await applied(true));
  printed.disabled = true;
  see(await applied(false));
  printed.disabled = false;
  see(await applied(true), printed.sheet.cssRules.length);
  printed.remove();
  const theme = link({ rel: "stylesheet", href: "/api/theme.css?theme" });
  see(await loaded(theme), await applied(true));
  theme.href = "/api/status/404";
  see(await loaded(theme));
  theme.setAttribute("href", "/api/theme.css?again");
  see(await loaded(theme), await applied(true));
  theme.removeAttribute("href");
  see(await applied(false));
  for (const one of document.head.querySelectorAll("link")) one.remove();
});

twin("element: scripts of every kind", async (see) => {
  window.loaded = 0;
  const run = async (values, patience = 60_000) => {
    const script = Object.assign(document.createElement("script"), values);
    const heard = Promise.race([loaded(script), new Promise((go) => setTimeout(go, patience, "nothing"))]);
    document.head.append(script);
    see(await heard, window.loaded);
    script.remove();
  };
  await run({ type: "module", src: `/api/script.js?module${Math.random()}` }); // a document runs a module once
  await run({ type: "text/javascript", src: "/api/script.js?type" });
  await run({ noModule: true, src: "/api/script.js?old" }, 300);
  await run({ type: "text/plain", src: "/api/script.js?data" }, 300);
  await run({ integrity: "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", src: "/api/script.js?other" });
});

twin("element: url() in quotes", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = `<p style='background: URL( "/api/pixel.png?(1)" )'>1</p><p style="background: url('/api/pixel.png?(2)')">2</p><p style="background: url( /api/pixel.png?3 )">3</p>`;
  for (const one of stage.children) see(await painted(one));
});
