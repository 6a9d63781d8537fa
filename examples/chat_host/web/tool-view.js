/** A call of a tool: a chip with its input and result, the question that waits for the person, and the app that shows it. */
import { icon, make } from "./dom.js";

const LONGEST = 4000;
const STATES = {
  writing: ["busy", "preparing"],
  running: ["busy", "running"],
  waiting: ["waiting", "waits for you"],
  done: ["done", "done"],
  failed: ["failed", "failed"],
  stopped: ["stopped", "stopped"],
};

export class ToolView {
  /** `apps` shows the app of the call, if it has one. */
  constructor(item, apps) {
    this.apps = apps;
    this.summary = make("summary");
    this.input = make("pre");
    this.output = make("pre");
    this.outputTitle = make("h2", {}, "Result");
    this.chip = make(
      "details",
      { class: "tool" },
      this.summary,
      make("div", { class: "inside" }, make("h2", {}, "Input"), this.input, this.outputTitle, this.output),
    );
    this.question = make("div");
    this.place = make("div", { class: "app" });
    this.element = make("li", {}, this.chip, this.question, this.place);
    this.update(item);
  }

  update(item) {
    this.item = item;
    const [mark, words] = STATES[item.state];
    this.chip.dataset.state = item.state;
    this.summary.replaceChildren(
      icon(mark, "mark"),
      make("span", { class: "name" }, item.title),
      make("span", { class: "hint" }, hintOf(item)),
      make("span", { class: "state" }, words),
    );
    this.drawInput();
    this.output.textContent = shorten(item.text);
    this.outputTitle.textContent = item.state === "failed" ? "What went wrong" : "Result";
    this.output.hidden = this.outputTitle.hidden = !item.text;
    this.question.replaceChildren(...(item.approval ? [approvalCard(item.approval)] : []));
    this.apps.show(this.place, item, this.partial);
  }

  append(text, partial) {
    this.item.written += text;
    this.partial = partial;
    this.drawInput();
    this.apps.show(this.place, this.item, partial);
  }

  drawInput() {
    const { state, written, arguments: input } = this.item;
    this.input.textContent = shorten(state === "writing" ? written : JSON.stringify(input, null, 2));
  }

  remove() {
    this.apps.forget(this.item.id);
  }
}

const shorten = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text);

/** The arguments in a few words. */
function hintOf({ state, arguments: input }) {
  if (state === "writing") return "";
  return Object.values(input ?? {})
    .filter((value) => ["string", "number", "boolean"].includes(typeof value))
    .join(", ")
    .slice(0, 80);
}

/** The question, and the link to the page that takes the answer: the chat itself never answers. */
function approvalCard({ url, message, is_gateways: isGateways }) {
  const host = URL.parse(url)?.host ?? "";
  const title = isGateways ? "This needs your approval" : "A page wants your attention";
  const where = isGateways ? `You answer on the gateway's own page (${host}). The call waits until then.` : `It is a page of ${host}, which is not the gateway's. Open it only if you expected this.`;
  return make(
    "section",
    { class: "approval", "aria-label": title },
    icon("shield"),
    make("p", { class: "title" }, title),
    make("p", { class: "question" }, message),
    make("p", { class: "where" }, where),
    make("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, "Look at it and answer", icon("open")),
  );
}
