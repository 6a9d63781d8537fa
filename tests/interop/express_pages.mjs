// A guest book with Express, and the same with Turbo: prints its port.
import { readFileSync } from "node:fs";
import express from "express";

const turbo = readFileSync(new URL("node_modules/@hotwired/turbo/dist/turbo.es2017-umd.js", import.meta.url), "utf8");
const app = express();
const guests = [];
let arrived = [];

const escape = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");
const page = (title, body, head = "") =>
  `<!doctype html><html><head><title>${title}</title>${head}<script>console.log("page " + document.title);</script></head>`
  + `<body><h1>${title}</h1>${body}</body></html>`;
const withTurbo = '<script src="/turbo.js"></script><script>window.realms = (window.realms || 0) + 1;</script>';
const book = (at) => `<ul>${guests.map((guest) => `<li>${escape(guest)}</li>`).join("")}</ul>`
  + `<form id="sign" method="post" action="${at}/sign"><input name="guest"><button>sign</button></form>`
  + `<a id="about" href="${at}/about">about</a> <a id="book" href="${at || "/"}">book</a>`;

app.disable("x-powered-by");
app.use(express.urlencoded({ extended: false }));
app.use((request, response, next) => {
  if (!/^\/(arrived|favicon.ico)$/.test(request.path)) arrived.push([request.method, request.path, request.headers.cookie ?? "", request.body?.guest ?? ""]);
  next();
});
app.get("/arrived", (_, response) => {
  response.json(arrived);
  arrived = [];
  guests.length = 0;
});
app.get("/turbo.js", (_, response) => response.type("text/javascript").send(turbo));
for (const [at, head] of [["", ""], ["/turbo", withTurbo]]) {
  app.get(at || "/", (_, response) => response.send(page(`Guest book${at}`, book(at), head)));
  app.get(`${at}/about`, (_, response) => response.send(page("About", book(at), head)));
  app.post(`${at}/sign`, (request, response) => {
    guests.push(request.body.guest);
    response.cookie("signed", String(guests.length), { httpOnly: true }).redirect(303, at || "/");
  });
}
app.use((request, response) => response.status(404).send(page("Nothing here", "")));
const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));
