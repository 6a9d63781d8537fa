seen.push(["classic", document.currentScript.getAttribute("src")]);
window.classicImport = import("./lib/counter.js");
{ const [at] = [location], { location: { pathname } } = document; seen.push(["classic reads", at.pathname, pathname]); }
