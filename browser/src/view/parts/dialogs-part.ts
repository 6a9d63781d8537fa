/**
 * `alert`, `confirm` and `prompt`, which the frames of hosts ignore: a dialog in the page shows them.
 *
 * No script can wait for its answer: `confirm` and `prompt` return the cancelled value; when the person answers, the
 * event that led to them is repeated, and they return the answer. A separate script, independent of the runtime.
 */

type Kind = "alert" | "confirm" | "prompt";
type AnsweredQuestion = readonly [question: string, answer: unknown];

interface Dialog {
  event: Event | undefined;
  /** Opens it, and returns its element. */
  open(): Element;
  element?: Element | undefined;
}

const STYLE = `
:host { all: initial !important; color-scheme: light dark !important; }
dialog { max-width: 26em; padding: 18px; border: 1px solid #8885; border-radius: 12px; box-shadow: 0 8px 28px #0004; font: 14px/1.4 system-ui, sans-serif; }
p { margin: 0 0 16px; white-space: pre-wrap; overflow-wrap: anywhere; }
input { box-sizing: border-box; width: 100%; margin-bottom: 16px; padding: 6px; font: inherit; }
div { display: flex; gap: 8px; justify-content: end; }
button { min-height: 34px; padding: 0 14px; border: 1px solid #8885; border-radius: 9px; background: none; color: CanvasText; font: inherit; font-weight: 600; cursor: pointer; }
[value="ok"] { border: 0; background: light-dark(#4050d8, #8c9aff); color: Canvas; }
`;

/** The answers that listeners of an event received, in order. */
const answersByEvent = new WeakMap<Event, AnsweredQuestion[]>();
/** The answers for an event that is repeated now, with the person's one. */
let replayedAnswers: AnsweredQuestion[] = [];
/** The first is open; further ones wait until it is closed. */
let dialogs: Dialog[] = [];

const STOPPED_EVENTS = ["keydown", "keypress", "keyup", "input", "pointerdown", "mousedown", "click"];

/** Returns a function that repeats the event whose listener runs now. */
function eventRepeater(event: Event | undefined): (() => void) | undefined {
  const [target] = event?.composedPath() ?? [];
  if (event instanceof SubmitEvent) return () => (target as HTMLFormElement).requestSubmit(event.submitter);
  if (event?.type === "click" && target instanceof HTMLElement) return () => target.click();
  return event && target && (() => target.dispatchEvent(Reflect.construct(event.constructor, [event.type, event]) as Event));
}

/** Returns a function that resets the control of an event to the person's input, or its state before the click. */
function controlRestorer(event: Event | undefined): () => void {
  const [target] = event?.composedPath() ?? [];
  if (target instanceof HTMLInputElement && /^(checkbox|radio)$/.test(target.type)) {
    const { checked } = target;
    return () => {
      target.checked = event!.type === "click" ? !checked : checked;
    };
  }
  if (!/^(change|input)$/.test(event?.type ?? "") || !target || !("value" in target)) return () => undefined;
  // By the native setter: the page's own one would hide the change.
  const native = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(target), "value");
  const { value } = target;
  return () => native?.set?.call(target, value);
}

/** Whether `event` is a submission that is not prevented: it is held, and sent after the answer. */
function holdSubmission(event: Event | undefined): () => boolean {
  let held = false;
  const last = (seen: Event): void => {
    if (seen !== event || seen.defaultPrevented) return;
    seen.preventDefault();
    held = true;
  };
  if (event instanceof SubmitEvent) addEventListener("submit", last, { once: true });
  return () => held;
}

/** Shows the dialog; `left` receives the answer at "OK", and nothing otherwise. */
function show(kind: Kind, message: string, value: string, left: (answer?: boolean | string) => void): Element {
  const holder = document.createElement("webmcp-gateway-dialog");
  // Typing there must not trigger the page's shortcuts.
  for (const type of STOPPED_EVENTS) holder.addEventListener(type, (event) => event.stopPropagation());
  const root = holder.attachShadow({ mode: "closed" });
  const [input, cancel] = [kind === "prompt" ? "<input>" : "", kind === "alert" ? "" : "<button value=''>Cancel</button>"];
  root.innerHTML = `<style>${STYLE}</style><dialog><p></p>${input}<div>${cancel}<button value="ok">OK</button></div></dialog>`;
  const dialog = root.querySelector("dialog")!;
  const field = root.querySelector("input");
  root.querySelector("p")!.textContent = message;
  const end = (ok: boolean): void => {
    dialog.close();
    holder.remove();
    left(ok ? (field?.value ?? true) : undefined);
  };
  for (const button of root.querySelectorAll("button")) button.onclick = () => end(!!button.value);
  dialog.oncancel = () => end(false);
  if (field) {
    field.value = value;
    field.onkeydown = (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      // The next focused element must not receive the key.
      event.preventDefault();
      end(true);
    };
  }
  document.documentElement.append(holder);
  dialog.showModal();
  (field ?? root.querySelector<HTMLElement>("[value=ok]")!).focus();
  return holder;
}

function openNext(): void {
  const [first] = dialogs;
  if (first) first.element = first.open();
}

function ask<Answer>(kind: Kind, message: string, cancelled: Answer, value = ""): Answer {
  const { event } = window;
  const question = kind + message;
  const said = (event && answersByEvent.get(event)) ?? [];
  if (event) answersByEvent.set(event, said);
  const answered = replayedAnswers[said.length];
  if (answered?.[0] === question) {
    said.push(answered);
    return answered[1] as Answer;
  }
  const before = [...said];
  said.push([question, cancelled]);
  const again = kind === "alert" ? undefined : eventRepeater(event);
  if (kind !== "alert" && !again) console.warn(`webmcp-gateway: ${kind}() cannot wait for an answer in a view: ask in a <dialog>`);
  const held = holdSubmission(again && event);
  const restore = controlRestorer(event);
  const dialog: Dialog = {
    event,
    open: () =>
      show(kind, message, value, (answer: unknown = cancelled) => {
        dialog.element = undefined;
        if (again && (answer !== cancelled || held())) {
          // Later questions of the event are asked again.
          dialogs = dialogs.filter((one) => one === dialog || one.event !== event);
          replayedAnswers = [...before, [question, answer]];
          restore();
          again();
          replayedAnswers = [];
        }
        dialogs.shift();
        openNext();
      }),
  };
  // A dialog that the page removed with its surroundings is never closed.
  if (dialogs[0]?.element?.isConnected === false) dialogs = [];
  if (dialogs.push(dialog) === 1) openNext();
  return cancelled;
}

if (window.parent !== window) {
  window.alert = (message: unknown = "") => ask("alert", String(message), undefined);
  window.confirm = (message: unknown = "") => ask("confirm", String(message), false);
  window.prompt = (message: unknown = "", value: unknown = "") => ask<string | null>("prompt", String(message), null, String(value));
}
