/** How often the backend was asked for `url`. */
const asked = async (url) => (await fetch(`/api/asked?url=${encodeURIComponent(url)}`)).json();
/** `url` as nobody else asks for it. */
const alone = (url) => `${url}&${alone.mark}`;
alone.mark = Math.random();
const linked = (values) => document.head.appendChild(Object.assign(document.createElement("link"), values));

twin("file: what is loaded ahead is asked for once", async (see) => {
  window.loaded = 0;
  const [script, module, sheet, picture] = ["script.js?early", "script.js?module-early", "theme.css?early", "pixel.png?early"].map((name) => alone(`/api/${name}`));
  const hints = [[script, "script"], [sheet, "style"], [picture, "image"]].map(([href, as]) => linked({ rel: "preload", as, href }));
  hints.push(linked({ rel: "modulepreload", href: module }));
  const image = new Image();
  const use = async (element) => see(await loaded(element));
  const both = [Object.assign(document.createElement("script"), { src: script }), Object.assign(document.createElement("script"), { type: "module", src: module })];
  await Promise.all(hints.map(loaded));
  for (const one of both) {
    document.head.append(one);
    await use(one);
  }
  hints.push(linked({ rel: "stylesheet", href: sheet }));
  await use(hints.at(-1));
  image.src = picture;
  await use(image);
  see(window.loaded);
  for (const url of [script, module, sheet, picture]) see(await asked(url));
  for (const one of [...hints, ...both]) one.remove();
});

twin("file: sheets that others import", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<p id="styled">s</p><p id="a">a</p>';
  const [styled, a] = stage.children;
  const sheet = (css) => `/api/sheet.css?css=${encodeURIComponent(css)}`;
  const color = () => [getComputedStyle(styled).color, getComputedStyle(a).color];
  const blue = "#a { color: blue }";
  const sheets = [
    `@import "theme.css"; ${blue}`, `@import url( theme.css?2 );${blue}`, `@charset "utf-8"; /* @import "no.css"; */ @import 'theme.css?3' screen`,
    `@import "theme.css" print; ${blue}`, `@import "theme.css" supports(display: nothing); ${blue}`, `@import url('theme.css') supports(display: grid) all;`,
    `@import "${sheet(blue)}" layer(low); #a { color: lime }`, `@layer one, two; @import "${sheet(blue)}" layer(two); @layer one { #a { color: lime } }`,
    `@import "${sheet(`@import "theme.css?deep"; ${blue}`)}";`, `${blue} @import "theme.css?late";`,
  ];
  for (const css of sheets) {
    const link = linked({ rel: "stylesheet", href: sheet(css) });
    see(css, await loaded(link), color());
    if (css === sheets[0]) see(await painted(styled));
    link.remove();
    await holds(() => color()[0] === color()[1]);
    const style = document.createElement("style");
    style.textContent = css.replaceAll('"theme.css', '"/api/theme.css').replace(/'theme.css/, "'/api/theme.css").replace("( theme", "( /api/theme");
    document.head.append(style);
    see(await loaded(style), color());
    style.remove();
  }
  const circle = linked({ rel: "stylesheet", href: "/api/sheet.css" });
  see(await loaded(circle), color());
  circle.remove();
  const broken = linked({ rel: "stylesheet", href: sheet(`@import "/api/status/404?import"; ${blue}`) });
  see(await loaded(broken), color());
  broken.remove();
});

twin("file: sheets that speak of imports and files", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<p id="styled">s</p><p id="a">a</p>';
  const sheets = [
    `#a::before { content: "@import" }`, `/* @import "no.css"; */ #a::before { content: '@import "theme.css";' }`,
    `@import "theme.css?said"; #a::before { content: "\\"@import 'theme.css';" }`, `@import/**/"theme.css?gap";#a::before { content: "@media{}@import" }`,
    `/* it's url(/api/pixel.png?spoken) */ #a::before { content: 'a \\' url("/api/pixel.png?spoken")' }`,
    `#a::before { content: "url(/api/pixel.png?spoken) '" url("/api/pixel.png?shown") }`,
  ];
  const said = () => getComputedStyle(stage.lastElementChild, "::before").content.replace(/ url\("(data|http).*?"\)/, " shown");
  const look = async () => see((await holds(() => !/ url\("\/api.*shown/.test(said()))) && said(), getComputedStyle(stage.firstElementChild).color);
  for (const css of sheets) {
    const link = linked({ rel: "stylesheet", href: `/api/sheet.css?css=${encodeURIComponent(css)}` });
    see(css, await loaded(link));
    await look();
    link.remove();
    const style = document.createElement("style");
    style.textContent = css.replaceAll('"theme', '"/api/theme');
    document.head.append(style);
    see(await loaded(style));
    await look();
    style.remove();
  }
  see(await asked("/api/pixel.png?spoken"));
});

twin("file: loaded ahead for fetch", async (see) => {
  const url = alone("/api/json?ahead");
  const hint = linked({ rel: "preload", as: "fetch", crossOrigin: "anonymous", href: url });
  see(await loaded(hint));
  see(await (await fetch(url)).json(), await asked(url));
  hint.remove();
});

twin("file: loaded ahead at the same time, or not there", async (see) => {
  window.loaded = 0;
  const url = alone("/api/script.js?at-once");
  const hint = linked({ rel: "preload", as: "script", href: url });
  const script = document.head.appendChild(Object.assign(document.createElement("script"), { src: url }));
  see(await loaded(script), window.loaded, await asked(url));
  const again = document.head.appendChild(Object.assign(document.createElement("script"), { src: `${url}&again` }));
  see(await loaded(again), window.loaded, await asked(`${url}&again`));
  const none = linked({ rel: "preload", as: "script", href: "/api/status/404?early" });
  see(await loaded(none));
  const broken = document.head.appendChild(Object.assign(document.createElement("script"), { src: "/api/status/404?early" }));
  see(await loaded(broken));
  for (const one of [hint, script, again, none, broken]) one.remove();
});

twin("file: scripts and links that get into the page within others", async (see) => {
  window.loaded = 0;
  const stage = document.getElementById("stage");
  const box = document.createElement("div");
  const [first, sheet] = [alone("/api/script.js?within"), alone("/api/theme.css?within")];
  const script = box.appendChild(document.createElement("script"));
  const link = box.appendChild(Object.assign(document.createElement("link"), { rel: "stylesheet", href: sheet }));
  const text = box.appendChild(Object.assign(document.createElement("p"), { id: "styled" }));
  script.src = first;
  await new Promise((go) => setTimeout(go, 100));
  see(window.loaded, await asked(first), await asked(sheet));
  const both = Promise.all([loaded(script), loaded(link)]);
  stage.append(box);
  see(await both, window.loaded, getComputedStyle(text).color);
  box.remove();
  text.remove();
  stage.append(text);
  see(getComputedStyle(text).color);
  link.remove();
  document.head.append(link);
  see(await loaded(link), getComputedStyle(text).color);
  link.remove();
  const gone = Object.assign(document.createElement("script"), { src: "/api/script.js?gone" });
  const ran = loaded(gone);
  document.head.append(gone);
  gone.remove();
  see(await ran, window.loaded);
});

twin("file: attributes with a namespace, and toggled", async (see) => {
  const xlink = "http://www.w3.org/1999/xlink";
  const stage = document.getElementById("stage");
  stage.innerHTML = '<svg width="1" height="1"><image width="1" height="1"/></svg><img>';
  const drawn = stage.querySelector("image");
  drawn.setAttributeNS(xlink, "href", "/api/pixel.png?ns");
  see(await loaded(drawn), drawn.getAttributeNS(xlink, "href"), drawn.hasAttributeNS(xlink, "href"));
  drawn.removeAttributeNS(xlink, "href");
  see(drawn.getAttributeNS(xlink, "href"), drawn.hasAttributeNS(xlink, "href"), drawn.href.baseVal, drawn.hasAttribute("href"));
  drawn.setAttribute("href", "/api/pixel.png?plain");
  see(await loaded(drawn));
  drawn.removeAttributeNS(null, "href");
  see(drawn.getAttribute("href"), drawn.href.baseVal);
  const picture = stage.querySelector("img");
  picture.setAttributeNS(null, "src", "/api/pixel.png?null");
  see(await loaded(picture), picture.getAttributeNS(null, "src"), picture.hasAttributeNS(null, "src"), picture.hasAttributeNS(xlink, "src"));
  see(picture.toggleAttribute("src"), picture.hasAttribute("src"), picture.getAttribute("src"), picture.src);
  see(picture.toggleAttribute("src", false), picture.toggleAttribute("hidden"), picture.hidden, picture.toggleAttribute("hidden", true), picture.toggleAttribute("HIDDEN"), picture.hidden);
  picture.src = "/api/pixel.png?forced";
  see(await loaded(picture), picture.toggleAttribute("src", true), picture.getAttribute("src"));
  for (const wrong of [() => picture.toggleAttribute("<"), () => picture.getAttributeNS(null), () => picture.setAttribute("<", "x")]) see(await failure(wrong));
});

twin("file: a srcset with candidates that are none, or are not there", async (see) => {
  const bad = "/api/status/404?set", good = "/api/pixel.png?set-";
  const sets = [
    `${good}1 1x, ${good}2 nonsense`, `${good}3 nonsense, ${good}4 1x`, `${good}5 1x, ${bad}1 4x`, `${bad}2 1x, ${good}6 4x`,
    `${good}7 100w, ${bad}3 20000w`, `${good}9, ${good}10 -2x, ${bad}5 0w`, `${bad}6 1x`, `${bad}7 1x 2x, ${good}11 1x`,
    `${bad}8 nonsense`, `${good}12 100w 50h, ${bad}9 100h`, `${good}13 1x, ${bad}10 1x`, `${bad}11 1x, ${good}14 1x`, `${good}15 100w, ${bad}12 2x`,
  ];
  for (const set of sets) {
    const picture = new Image();
    picture.sizes = "50px";
    picture.srcset = set;
    const heard = await Promise.race([loaded(picture), new Promise((go) => setTimeout(go, 500, "nothing"))]);
    see(set, heard, picture.naturalWidth > 0);
  }
});

twin("file: pictures whose media type has a space", async (see) => {
  for (const values of [{ src: "/api/pixel.svg" }, { srcset: "/api/pixel.svg?one 1x" }, { sizes: "50px", srcset: "/api/pixel.svg?two 50w, /api/pixel.svg?three 51w" }]) {
    const picture = Object.assign(new Image(), values);
    see(await loaded(picture), picture.naturalWidth > 0);
  }
});

twin("file: a background by its attribute", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<table background="/api/pixel.png?table"><tr><td background="/api/pixel.png?td">x</td><th>y</th></tr></table>';
  see(await painted(stage.querySelector("table")), await painted(stage.querySelector("td")));
  const head = stage.querySelector("th");
  head.setAttribute("background", "/api/pixel.png?th");
  see(await painted(head), head.getAttribute("background"));
  document.body.background = "/api/pixel.png?body";
  see(await painted(document.body), document.body.background);
  document.body.removeAttribute("background");
  see(document.body.background, getComputedStyle(document.body).backgroundImage);
});

const named = (name, values) => Object.assign(document.createElement("script"), { src: `/api/named.js?name=${name}`, ...values });

twin("file: scripts that are not async run in their order", async (see) => {
  window.order = [];
  const scripts = [named("first&ms=300", { async: false }), named("second", { async: false }), named("third", { type: "module", async: false }), named("free")];
  document.head.append(...scripts);
  await Promise.all(scripts.map(loaded));
  see(window.order);
  window.order = [];
  const broken = named("", { src: "/api/status/404?order", async: false });
  const after = [named("fourth&ms=300", { async: false }), broken, named("fifth", { async: false })];
  document.head.append(...after);
  see(await Promise.all(after.map(loaded)), window.order);
});

twin("file: a link that is taken out while it loads", async (see) => {
  const told = [];
  const link = (name) => linked({ rel: "stylesheet", href: `/api/named.css?name=${name}&ms=200`, onload: () => told.push(name) });
  const [gone, back] = [link("gone"), link("back")];
  await new Promise((go) => setTimeout(go, 50));
  gone.remove();
  back.remove();
  await new Promise((go) => setTimeout(go, 1));
  document.head.append(back);
  await loaded(back);
  await new Promise((go) => setTimeout(go, 400));
  see(told);
  back.remove();
});

twin("file: a picture that is awaited at once", async (see) => {
  const picture = new Image();
  see(picture.complete);
  picture.setAttribute("src", alone("/api/pixel.png?decoded"), "old");
  see(picture.complete, picture.naturalWidth, await failure(picture.decode()), picture.complete, picture.naturalWidth);
  const broken = new Image();
  broken.src = "/api/status/404?decoded";
  see(broken.complete, await failure(broken.decode()), broken.complete);
});

twin("file: scripts that parsers made", async (see) => {
  window.order = [];
  const stage = document.getElementById("stage");
  const script = (name) => `<script src="/api/named.js?name=${name}"></script>`;
  stage.innerHTML = script("inner");
  const template = document.createElement("template");
  template.innerHTML = script("template");
  stage.append(template.content.cloneNode(true));
  stage.insertAdjacentHTML("beforeend", script("adjacent"));
  stage.append(document.createRange().createContextualFragment(script("fragment")));
  const ran = loaded(stage.lastChild);
  const written = named("written", {});
  stage.append(written);
  see(await Promise.all([ran, loaded(written)]), window.order.sort());
});

twin("file: names alone in an image-set that comes later", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = `<p id="a">a</p><p style="background-image: image-set( '/api/pixel.png?set-b' 1x, '/api/pixel.png?set-c' 2x )">b</p><p id="c">c</p>`;
  const sheet = document.createElement("style");
  sheet.textContent = `#a { background-image: image-set("/api/pixel.png?set-a" type("image/png") 1x, url(/api/pixel.png?set-d) 2x) } #c::after { content: "/api/pixel.png"; color: red }`;
  stage.append(sheet);
  const own = [location.origin, "data:"];
  const filled = (one) => [...getComputedStyle(one).backgroundImage.matchAll(/url\("([^"]*)/g)].map(([, url]) => own.some((from) => url.startsWith(from)));
  const [a, b, c] = stage.children;
  for (const one of [a, b]) see(await holds(() => filled(one).length === 2 && filled(one).every(Boolean)));
  see(getComputedStyle(c, "::after").content);
});

twin("file: a link that is moved within its box", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<div><b id="named">x</b></div>';
  const box = stage.firstChild;
  const told = [];
  const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: "/api/named.css?name=moved" });
  for (const type of ["load", "error"]) link.addEventListener(type, () => told.push(type));
  box.prepend(link);
  await loaded(link);
  const red = () => getComputedStyle(box.querySelector("b")).color === "rgb(255, 0, 0)";
  see(told.length, red());
  box.append(link);
  await loaded(link);
  see(told.length, red(), box.innerHTML);
  stage.append(box);
  await loaded(link);
  see(await holds(red), told.length, stage.innerHTML);
  box.remove();
});

twin("file: a sound by its sources", async (see) => {
  const stage = document.getElementById("stage");
  const kept = document.getElementById("kept");
  if (!kept.readyState) await once(kept, "loadeddata");
  see(kept.currentSrc, kept.outerHTML);
  const [none, first, second] = ["status/404?sources", "sound.wav?first", "sound.wav?second"].map((name) => alone(`/api/${name}`));
  stage.innerHTML = `<audio><source src="${first}"><source src="${second}"></audio>`;
  const [written] = stage.children;
  await once(written, "loadeddata");
  const plain = (text) => text.replaceAll(alone.mark, "");
  see(plain(written.currentSrc), written.networkState, written.error, await asked(first), await asked(second), plain(written.outerHTML));
  const made = document.createElement("audio");
  made.muted = true;
  const failed = new Set();
  for (const [name, src] of Object.entries({ none, text: "/api/hello", first, second })) {
    const source = made.appendChild(Object.assign(document.createElement("source"), { src }));
    source.addEventListener("error", () => failed.add(name));
  }
  see(await failure(made.play()), [...failed], plain(made.currentSrc), await asked(second));
  made.replaceChildren(made.lastChild);
  for (const src of [second, first]) {
    made.firstChild.src = src;
    made.load();
    await once(made, "loadeddata");
    see(plain(made.currentSrc), await asked(second) > 0);
  }
});

twin("file: pictures that are lazy", async (see) => {
  scrollTo(0, 0);
  const stage = document.getElementById("stage");
  const url = (name) => alone(`/api/pixel.png?lazy-${name}`);
  const lazy = (src) => Object.assign(document.createElement("img"), { src, loading: "lazy" });
  const [close, far, soon, other] = ["close", "far", "soon", "other"].map((name) => lazy(url(name)));
  const box = document.createElement("div");
  box.style.height = "20000px";
  stage.append(box, far, soon, other);
  stage.prepend(close);
  see(await loaded(close), close.naturalWidth);
  for (const one of [far, soon, other]) see(one.complete, one.naturalWidth, one.loading, await asked(one.getAttribute("src")));
  soon.loading = "eager";
  see(await loaded(soon), soon.complete);
  other.removeAttribute("loading");
  see(await loaded(other), await asked(far.getAttribute("src")), far.complete);
  far.src = url("then");
  far.scrollIntoView();
  see(await loaded(far), far.complete, far.outerHTML.replace(alone.mark, ""));
});
