seen.push(["classic", document.currentScript.getAttribute("src")]);
window.classicImport = import("./lib/counter.js");
