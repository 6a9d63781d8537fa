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

twin("element: srcset", async (see) => {
  const picture = new Image();
  picture.srcset = "/api/pixel.png 1x, /api/pixel.png?2 2x";
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
