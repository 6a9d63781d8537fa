/** The page of the chat: bar, conversation and composer. */
import { Apps } from "./apps.js";
import { follow, post, RequestError } from "./api.js";
import { ConversationView } from "./conversation-view.js";
import { drawIcons, icon, make } from "./dom.js";
import { setUpTheme } from "./theme.js";

const STORED = "chat-host:conversation";
const NEAR_END = 120;

const SUGGESTIONS = [
  ["shop", "Show me the shop", "an app in the conversation"],
  ["spark", "Add two jars of honey", "a tool of the app at work"],
  ["board", "Open the board", "an app in a panel"],
  ["chart", "Show me the budget", "an app of another MCP server"],
];

const at = (id) => document.getElementById(id);
const say = (text) => (at("status").textContent = text);

let conversation = "";
let isBusy = false;
let unfollow = () => {};

const apps = new Apps({
  consent: askConsent,
  send: (text, app) => send(text, app),
  context: (app, text) => call("context", { app, text }),
  skip: () => call("skip"),
  token: async () => (await post("token")).token,
});
const view = new ConversationView(at("items"), { apps, retry: () => call("retry"), say });

// ── the conversation ────────────────────────────────────────────────────────────────────────────────────────────────

async function open(id) {
  unfollow();
  view.reset([]);
  conversation = id;
  localStorage.setItem(STORED, id);
  unfollow = follow(id, change, (state) => {
    if (state === "gone") return void startNew();
    at("offline").textContent = state === "lost" ? "The connection to the chat is lost. It is tried again…" : "";
  });
}

async function startNew() {
  try {
    await open((await post("conversations")).id);
    at("text").focus();
  } catch (error) {
    if (isSignedOut(error)) return showSignIn();
    at("offline").textContent = error.message;
    setTimeout(startNew, 3000);
  }
}

const isSignedOut = (error) => error instanceof RequestError && error.status === 401;

/** Nobody is signed in (any more): nothing of a conversation stays on the page, and no view of an app. */
function showSignIn() {
  unfollow();
  localStorage.removeItem(STORED);
  if (!view.isEmpty) return location.reload();
  document.body.dataset.signedOut = "";
  for (const id of ["welcome", "working", "new", "sign-out", "to-end"]) at(id).hidden = true;
  at("offline").textContent = "";
  at("model").textContent = "";
  at("signed-out").hidden = false;
}

async function signOut() {
  try {
    await post("sign-out");
  } catch (error) {
    if (!isSignedOut(error)) return void (at("offline").textContent = error.message);
  }
  localStorage.removeItem(STORED);
  location.reload(); // with it end the views of apps
}

/** Take one change of the stream. */
function change({ items, item, append, removed, busy, status }) {
  const follows = isAtEnd();
  if (items) view.reset(items);
  if (items) wasAtEnd = true;
  if (item) view.put(item);
  if (append) view.append(append);
  if (removed) view.remove(removed);
  if (busy !== undefined) setBusy(busy);
  if (status) showStatus(status);
  at("welcome").hidden = !view.isEmpty;
  if (items || item || append) showWorking(item ?? append);
  if (follows || items) toEnd();
}

function showStatus({ person, model, connected, tools, gateway }) {
  at("sign-out").hidden = !person;
  at("sign-out").setAttribute("aria-label", `Sign out ${person}`);
  at("sign-out").title = "Sign out";
  at("person").textContent = person;
  if (connected) apps.connect(gateway);
  at("model").textContent = model;
  const isAway = connected === false; // null: it is not known yet
  at("dot").dataset.state = connected ? "on" : isAway ? "off" : "";
  at("dot").title = connected ? `Connected to the gateway: ${tools} tools` : isAway ? "The gateway cannot be reached" : "Connecting";
  at("offline").textContent = !isAway ? "" : "The gateway cannot be reached: apps and tools are missing until it is back.";
}

function setBusy(busy) {
  isBusy = busy;
  at("stop").hidden = !busy;
  at("send").hidden = busy;
  at("items").setAttribute("aria-busy", String(busy));
  showWorking();
}

/** The dots are shown while nothing else moves. */
function showWorking(last) {
  const writes = last?.state === "writing" || last?.text !== undefined && last?.kind === undefined;
  at("working").hidden = !isBusy || writes || last?.state === "waiting" || last?.state === "running";
}

// ── scrolling ───────────────────────────────────────────────────────────────────────────────────────────────────────

const isAtEnd = () => document.documentElement.scrollHeight - innerHeight - scrollY < NEAR_END;
const toEnd = () => scrollTo({ top: document.documentElement.scrollHeight });
addEventListener("scroll", () => (at("to-end").hidden = isAtEnd() || view.isEmpty), { passive: true });
at("to-end").addEventListener("click", toEnd);

// An app that grows keeps the end in view, if it was.
let wasAtEnd = true;
addEventListener("scroll", () => (wasAtEnd = isAtEnd()), { passive: true });
new ResizeObserver(() => wasAtEnd && toEnd()).observe(at("items"));

// ── composer ────────────────────────────────────────────────────────────────────────────────────────────────────────

async function call(path, body) {
  try {
    await post(`conversations/${conversation}/${path}`, body);
    return true;
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    if (isSignedOut(error)) location.reload();
    at("offline").textContent = error.message;
    return false;
  }
}

async function send(text, app) {
  if (!text.trim() || isBusy) return false;
  toEnd();
  return call("messages", app ? { text, app } : { text });
}

async function submit() {
  const text = at("text").value;
  if (await send(text)) {
    at("text").value = "";
    drawComposer();
  }
}

function drawComposer() {
  at("send").disabled = !at("text").value.trim();
}

at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  void submit();
});
at("text").addEventListener("input", drawComposer);
at("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  void submit();
});
at("stop").addEventListener("click", async () => {
  await call("stop");
  at("text").focus();
});
at("new").addEventListener("click", startNew);
at("sign-out").addEventListener("click", signOut);

/** Ask the person whether an app may write in their name. One question at a time: others are declined. */
async function askConsent(app, text) {
  const dialog = at("consent");
  if (dialog.open || isBusy) return false;
  at("consent-title").textContent = `${app} wants to send a message`;
  at("consent-text").textContent = text;
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  return dialog.returnValue === "yes";
}

// ── beginning ───────────────────────────────────────────────────────────────────────────────────────────────────────

for (const [mark, title, what] of SUGGESTIONS) {
  const button = make("button", { type: "button" }, icon(mark), make("b", {}, title), make("small", {}, what));
  button.addEventListener("click", () => send(title));
  at("suggestions").append(make("li", {}, button));
}
drawIcons(document);
drawComposer();
setUpTheme(at("theme"));
const stored = localStorage.getItem(STORED);
if (stored) await open(stored);
else await startNew();
