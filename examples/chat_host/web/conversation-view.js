/** The list of items: each item has a view, which follows the changes of the stream. */
import { ContextView, FailureView, MessageView } from "./message-view.js";
import { ToolView } from "./tool-view.js";

export class ConversationView {
  /** `list` receives the elements; `apps` shows apps; `retry` lets the model answer again; `say` speaks to screen readers. */
  constructor(list, { apps, retry, say }) {
    this.list = list;
    this.views = new Map();
    this.make = {
      message: (item) => new MessageView(item),
      tool: (item) => new ToolView(item, apps),
      context: (item) => new ContextView(item),
      failure: (item) => new FailureView(item, retry),
    };
    this.say = say;
  }

  /** All items: at first, and after a lost connection. What is shown already stays, so that apps are not loaded again. */
  reset(items) {
    const ids = new Set(items.map(({ id }) => id));
    for (const id of [...this.views.keys()]) if (!ids.has(id)) this.remove(id);
    for (const item of items) this.put(item, true);
  }

  put(item, isOld = false) {
    const view = this.views.get(item.id);
    if (view) view.update(item);
    else {
      const made = this.make[item.kind](item);
      this.views.set(item.id, made);
      this.list.append(made.element);
    }
    if (!isOld) this.announce(item);
  }

  append({ id, text, partial }) {
    this.views.get(id)?.append(text, partial);
  }

  remove(id) {
    const view = this.views.get(id);
    this.views.delete(id);
    view?.remove?.();
    view?.element.remove();
  }

  get isEmpty() {
    return this.views.size === 0;
  }

  announce(item) {
    if (item.kind === "message" && item.role === "assistant" && item.state !== "writing") this.say(item.text);
    if (item.kind === "tool" && item.state === "waiting") this.say(`${item.title} waits for your approval: ${item.approval?.message ?? ""}`);
    if (item.kind === "tool" && item.state === "running") this.say(`${item.title} is called.`);
  }
}
