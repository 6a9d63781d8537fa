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
  see(await loaded(link), getComputedStyle(stage.firstChild).color, /^url\(/.test(getComputedStyle(stage.firstChild).backgroundImage));
  link.remove();
  await new Promise((go) => setTimeout(go, 20));
  see(getComputedStyle(stage.firstChild).color);
});

twin("element: url() in styles", async (see) => {
  const stage = document.getElementById("stage");
  stage.innerHTML = '<p style="color: red; background: url(/api/pixel.png)">x</p><style>#two { background: url("/api/pixel.png?3") }</style><p id="two">y</p>';
  await new Promise((go) => setTimeout(go, 300));
  see([...stage.querySelectorAll("p")].map((one) => /^url\(/.test(getComputedStyle(one).backgroundImage)), stage.firstChild.style.color);
});
