/** Messages, contexts of apps, and answers that did not come. */
import { icon, make } from "./dom.js";
import { renderMarkdown } from "./markdown.js";

/** A message of the person, of an app in the person's name, or of the model. */
export class MessageView {
  constructor(item) {
    this.element = make("li");
    this.body = make("div", { class: "text" });
    this.frame = null;
    this.update(item);
  }

  update(item) {
    this.item = item;
    const mine = item.role === "user";
    const article = make("article", { class: `message ${mine ? "user" : "assistant"}${item.app ? " from-app" : ""}`, "aria-label": mine ? "You" : "Assistant" });
    if (item.app) article.append(make("p", { class: "from" }, icon("app"), `From the app ${item.app}, sent with your consent`));
    article.append(this.body);
    if (item.state === "writing") article.classList.add("writing");
    if (item.state === "stopped") article.append(make("p", { class: "stopped" }, "Stopped here."));
    this.element.replaceChildren(article);
    this.draw();
  }

  append(text) {
    this.item.text += text;
    // The whole text is drawn again, once for each frame: marks may begin anywhere.
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.frame = null;
    // A person's text is shown as it was typed.
    this.body.replaceChildren(...(this.item.role === "user" ? [this.item.text] : renderMarkdown(this.item.text)));
  }
}

/** What an app wants the model to know. */
export class ContextView {
  constructor(item) {
    this.element = make("li");
    this.update(item);
  }

  update({ app, text }) {
    const summary = make("summary", {}, icon("app"), make("span", {}, make("b", {}, app), " told the assistant something"));
    this.element.replaceChildren(make("details", { class: "context" }, summary, make("blockquote", {}, text)));
  }
}

const TITLES = {
  unreachable: "The model cannot be reached",
  key: "The key was not accepted",
  "not-found": "The model was not found",
  "rate-limited": "Too many requests for now",
  overloaded: "The model is overloaded",
  "too-long": "The conversation is too long",
  refused: "The request was refused",
  broken: "The answer broke off",
  endless: "The model went in circles",
};

/** An answer that did not come, and the button to try again; after a rate limit it waits as long as it should. */
export class FailureView {
  constructor(item, retry) {
    this.element = make("li");
    this.retry = retry;
    this.update(item);
  }

  update({ reason, text, retry_after: seconds }) {
    this.button = make("button", { type: "button" }, "Try again");
    this.button.addEventListener("click", this.retry);
    const words = make("div", {}, make("p", { class: "title" }, TITLES[reason] ?? "That did not work"), make("p", { class: "why" }, text));
    this.element.replaceChildren(make("div", { class: "failure", role: "alert" }, icon("alert"), words, this.button));
    if (seconds > 0 && this.until === undefined) this.until = performance.now() + seconds * 1000;
    if (this.until) this.count();
  }

  count() {
    const left = Math.ceil((this.until - performance.now()) / 1000);
    this.button.disabled = left > 0;
    this.button.textContent = left > 0 ? `Try again in ${left} s` : "Try again";
    if (left > 0) this.timer = setTimeout(() => this.count(), 500);
  }

  remove() {
    clearTimeout(this.timer);
  }
}
