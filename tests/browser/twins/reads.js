/** What a page reads of an element that names a file. */
function reads(see, element, attribute) {
  see(element.outerHTML, element.getAttribute(attribute), element.hasAttribute(attribute), element.getAttributeNode(attribute)?.value, element.cloneNode().outerHTML);
}

/** What selectors find of it: no data stands where the page named a file. */
function selected(see, element, attribute) {
  const value = element.getAttribute(attribute);
  see(element.matches(`[${attribute}=${JSON.stringify(value)}]`), element.matches(`[${attribute}^="${value.slice(0, 5)}"]`), element.attributes[attribute].value);
}

/** The changes of `element` that an observer is told while `act` runs. */
async function changes(element, attributeFilter, act) {
  const told = [];
  const observer = new MutationObserver((records) => told.push(...records.map(({ attributeName, oldValue }) => [attributeName, oldValue])));
  observer.observe(element, { attributeFilter, attributeOldValue: true });
  await act();
  observer.disconnect();
  return told;
}

twin("read: a picture says what the page named", async (see) => {
  const stage = document.getElementById("stage");
  const picture = new Image();
  const told = await changes(picture, ["src", "alt"], async () => {
    picture.src = "/api/pixel.png?a&b=\"c\"";
    for (const when of ["while it loads", "loaded"]) {
      see(when);
      reads(see, picture, "src");
      selected(see, picture, "src");
      see(picture.srcset, picture.getAttribute("srcset"), picture.hasAttribute("srcset"));
      if (when !== "loaded") see(await loaded(picture));
    }
    picture.alt = "b";
    picture.src = "/api/status/404?read";
    see(await loaded(picture), picture.naturalWidth, picture.complete);
    selected(see, picture, "src");
    picture.setAttribute("src", "/api/pixel.png?then");
    see(await loaded(picture), picture.naturalWidth, picture.src, picture.currentSrc);
  });
  see(told);
  stage.append(picture);
  see(stage.innerHTML, stage.querySelector('img[src="/api/pixel.png?then"]') === picture);
  const copy = stage.appendChild(picture.cloneNode());
  see(await loaded(copy), copy.naturalWidth, copy.src, copy.outerHTML);
  const own = picture.cloneNode();
  const other = document.createElement("canvas").toDataURL();
  own.src = other;
  see(await loaded(own), own.naturalWidth, own.outerHTML === `<img alt="b" src="${other}">`, own.currentSrc === other);
  for (const remove of [(one) => one.removeAttribute("src"), (one) => one.toggleAttribute("src")]) {
    picture.src = "/api/pixel.png?gone";
    see(await loaded(picture));
    remove(picture);
    see(await holds(() => !picture.naturalWidth), picture.outerHTML);
  }
});

twin("read: a picture between src and srcset", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<img src="/api/pixel.png?first">';
  const [picture] = stage.children;
  see(await loaded(picture), stage.innerHTML);
  picture.srcset = "/api/status/404?srcset 1x";
  see(await loaded(picture), stage.innerHTML, picture.srcset, picture.naturalWidth);
  picture.srcset = "/api/pixel.png?srcset 1x";
  see(await loaded(picture), stage.innerHTML, picture.naturalWidth);
  picture.src = "/api/status/404?unseen";
  picture.removeAttribute("srcset");
  see(await loaded(picture), stage.innerHTML, picture.naturalWidth);
  picture.src = "/api/pixel.png?last";
  see(await loaded(picture), stage.innerHTML, picture.naturalWidth);
});

twin("read: a picture hears of each file once", async (see) => {
  const stage = document.getElementById("stage");
  const told = [];
  const picture = stage.appendChild(new Image());
  for (const type of ["load", "error"]) picture.addEventListener(type, () => told.push([type, picture.src, picture.naturalWidth]));
  for (const url of ["/api/pixel.png?1", "/api/status/404?1", "/api/pixel.png?2", "/api/pixel.png?2"]) {
    picture.src = url;
    await loaded(picture);
  }
  await new Promise((go) => setTimeout(go, 100));
  see(told);
});

twin("read: a picture that is made like another", async (see) => {
  const stage = document.getElementById("stage");
  const told = [];
  stage.innerHTML = '<img src="/api/pixel.png?like">';
  const [picture] = stage.children;
  await loaded(picture);
  picture.addEventListener("load", () => told.push(picture.src));
  const other = new DOMParser().parseFromString('<img src="/api/pixel.png?like" alt="x">', "text/html").body.firstChild;
  for (const { name, value } of other.attributes) if (picture.getAttribute(name) !== value) picture.setAttribute(name, value);
  for (const { name } of [...picture.attributes]) if (!other.hasAttribute(name)) picture.removeAttribute(name);
  picture.removeAttributeNS(null, "srcset");
  picture.removeAttribute("srcset");
  see(picture.complete, picture.naturalWidth, picture.outerHTML);
  const next = stage.appendChild(new Image());
  next.src = "/api/pixel.png?next";
  see(await loaded(next), told);
  picture.removeAttribute("src");
  see(await holds(() => !picture.naturalWidth), picture.outerHTML, told);
});

twin("read: scripts and sheets say what the page named", async (see) => {
  window.order = [];
  for (const [tag, attribute, values, name] of [["script", "src", {}, "js?name=read"], ["link", "href", { rel: "stylesheet" }, "css?name=read"]]) {
    const element = Object.assign(document.createElement(tag), values);
    const told = await changes(element, [attribute], async () => {
      element[attribute] = `/api/named.${name}&ms=50`;
      reads(see, element, attribute);
      selected(see, element, attribute);
      document.head.append(element);
      see(document.querySelectorAll(`${tag}[${attribute}="/api/named.${name}&ms=50"]`).length);
      see(await loaded(element), element[attribute]);
      reads(see, element, attribute);
    });
    see(told);
    element.remove();
  }
  see(window.order);
});

twin("read: a script runs once, as itself", async (see) => {
  window.order = [];
  const box = document.createElement("div");
  const script = box.appendChild(document.createElement("script"));
  box.append(document.createElement("b"));
  script.src = "/api/current.js";
  see(box.innerHTML, script.ownerDocument === document);
  const alone = Object.assign(document.createElement("script"), { src: "/api/current.js" });
  see(alone.ownerDocument === document, alone.isConnected);
  document.head.append(box);
  see(await loaded(script), window.order, document.currentScript);
  script.src = "/api/named.js?name=again";
  script.setAttribute("src", "/api/named.js?name=more");
  box.remove();
  document.head.append(box);
  await new Promise((go) => setTimeout(go, 200));
  see(window.order, script.src);
  const late = document.head.appendChild(document.createElement("script"));
  late.src = "/api/named.js?name=late";
  see(await loaded(late), window.order);
  const data = Object.assign(document.createElement("script"), { src: "/api/named.js?name=data" });
  data.type = "text/plain";
  document.head.append(data);
  await new Promise((go) => setTimeout(go, 100));
  see(window.order);
  for (const one of [box, late, data]) one.remove();
});

twin("read: what else names a file", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<svg width="1" height="1"><image width="1" height="1"></image></svg><video poster="/api/pixel.png?v"></video><table background="/api/pixel.png?t"></table><input type="image" alt=""><audio></audio>';
  const [svg, video, table, input, audio] = stage.children;
  input.src = "/api/pixel.png?i";
  see(input.src, input.getAttribute("src"), await loaded(input));
  reads(see, input, "src");
  const drawn = svg.firstChild;
  drawn.setAttributeNS("http://www.w3.org/1999/xlink", "xlink:href", "/api/pixel.png?x");
  reads(see, drawn, "xlink:href");
  see(await loaded(drawn), drawn.hasAttribute("href"), drawn.getAttribute("href"));
  for (const wait of [video, table]) see(await holds(() => !wait.outerHTML.includes("data:")));
  see(stage.innerHTML, new Set(stage.querySelectorAll("[poster],[background]")).size);
  const heard = [];
  for (const type of ["loadstart", "error", "emptied"]) audio.addEventListener(type, () => heard.push(type));
  audio.src = "/api/status/404?audio";
  see(await loaded(audio), heard, audio.error.code);
  reads(see, audio, "src");
  const sound = new Audio("/api/sound.wav");
  await once(sound, "loadeddata");
  see(sound.src, sound.preload, sound.outerHTML, sound.duration, new Audio().outerHTML, sound instanceof Audio, Audio.name, Audio.length);
});

twin("read: a picture with src and srcset before it is in the page", async (see) => {
  const both = new Image();
  both.src = "/api/pixel.png?both-src&ms=1";
  both.srcset = "/api/pixel.png?both-set 1x";
  see(await loaded(both), both.complete, both.src, both.srcset);
  const own = new Image();
  own.src = "/api/pixel.png?own-src";
  own.srcset = document.createElement("canvas").toDataURL() + " 1x";
  see(await loaded(own), own.complete, own.naturalWidth > 1);
  own.removeAttribute("srcset");
  see(await loaded(own), own.complete, own.naturalWidth, own.outerHTML);
});

twin("read: what is written out, and what a picture shows", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<div><img src="/api/pixel.png?out" alt="a"><svg width="1" height="1"><image href="/api/pixel.png?svg" width="1" height="1"></image></svg></div>';
  const box = stage.firstChild;
  await loaded(box.firstChild);
  see(await holds(() => !box.outerHTML.includes("data:")), box.getHTML(), new XMLSerializer().serializeToString(box));
  see(box.getHTML.name, box.getHTML.length, await failure(() => new XMLSerializer().serializeToString()));
  for (const srcset of ["/api/pixel.png?one", "/api/pixel.png?one 1x, /api/pixel.png?one 2x", "/api/pixel.png?wide 100w"]) {
    const picture = Object.assign(new Image(), { srcset });
    see(await loaded(picture), picture.currentSrc, picture.src);
  }
});

twin("read: no policy is violated by what a page sets", async (see) => {
  const told = [];
  addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => told.push([violatedDirective, blockedURI]));
  const picture = new Image();
  picture.src = "/api/pixel.png?policy";
  see(await loaded(picture));
  const script = document.head.appendChild(Object.assign(document.createElement("script"), { src: "/api/script.js?policy" }));
  see(await loaded(script));
  script.remove();
  see(told);
});

twin("read: no policy is violated by links that a page adds", async (see) => {
  const told = [];
  const violated = ({ violatedDirective, blockedURI }) => told.push([violatedDirective, blockedURI]);
  addEventListener("securitypolicyviolation", violated);
  const links = [
    ["rel", "href"], ["href", "rel"], ["rel", "type", "href"], ["href", "type", "rel"], ["href", "as", "rel=preload"], ["rel", "href", "as", "rel=preload"],
  ];
  for (const [at, order] of links.entries()) {
    const values = { rel: "stylesheet", type: "text/css", as: "style", href: `/api/theme.css?policy-${at}` };
    for (const how of ["property", "attribute"]) {
      const link = document.createElement("link");
      for (const [name, value = values[name]] of order.map((one) => one.split("="))) how === "property" ? (link[name] = value) : link.setAttribute(name, value);
      see(link.type, link.getAttribute("type"), link.hasAttribute("type"), link.outerHTML.split(" ").sort());
      document.head.append(link);
      see(await loaded(link), link.type, link.getAttribute("type"), link.sheet?.cssRules.length, told.length);
      link.remove();
    }
  }
  const given = document.head.appendChild(Object.assign(document.createElement("link"), { rel: "stylesheet", href: "/api/theme.css?given" }));
  see(await loaded(given));
  given.type = "text/css";
  see(given.type, given.getAttribute("type"));
  const copy = given.cloneNode();
  document.head.append(copy);
  see(await loaded(copy), copy.type);
  for (const one of [given, copy]) one.remove();
  removeEventListener("securitypolicyviolation", violated);
  see(told);
});

twin("read: functions have the names and lengths that they had", async (see) => {
  const of = (owner, ...names) => names.map((name) => [name, owner[name]?.name, owner[name]?.length]);
  see(of(window, "fetch", "Request", "URL", "StorageEvent", "EventSource", "XMLHttpRequest"));
  see(of(URL, "createObjectURL", "revokeObjectURL"), of(Request.prototype, "clone"), of(HTMLFormElement.prototype, "submit", "requestSubmit"));
  see(of(Storage.prototype, "getItem", "setItem", "removeItem", "clear", "key"), of(StorageEvent.prototype, "initStorageEvent"));
  see(of(Element.prototype, "setAttribute", "getAttribute"), of(Navigator.prototype, "sendBeacon"));
});
