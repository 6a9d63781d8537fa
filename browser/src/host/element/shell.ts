/** The element's own parts around the app: the stage of its frame, what is shown while it loads or after an error, and questions. */

const STYLES = `
:host {
  display: block;
  position: relative;
  box-sizing: border-box;
  min-height: var(--mcp-app-min-height, 3rem);
  color-scheme: inherit;
}
:host([hidden]) { display: none; }
.content { position: relative; min-height: inherit; outline: none; }
.content[slot=panel], .content[slot=workspace] { overflow: auto; }
.stage { height: 100%; }
.stage iframe { height: var(--mcp-app-height, 15rem); background: transparent; }
.stage.fills iframe { height: 100% !important; min-height: 100%; }
.note, dialog { font: 14px/1.45 system-ui, sans-serif; }
.note { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem .75rem; padding: .75rem 1rem; color: inherit; }
.note[hidden] { display: none; }
.loading { position: absolute; inset: 0; justify-content: center; pointer-events: none; opacity: .75; }
.spinner {
  width: 1.1em; height: 1.1em; border: 2px solid color-mix(in srgb, currentColor 25%, transparent);
  border-top-color: currentColor; border-radius: 50%; animation: turn .9s linear infinite;
}
@keyframes turn { to { transform: rotate(360deg) } }
@media (prefers-reduced-motion: reduce) { .spinner { animation-duration: 4s } }
.error { border: 1px solid color-mix(in srgb, currentColor 22%, transparent); border-radius: 10px; }
.error p { margin: 0; flex: 1 1 16rem; overflow-wrap: anywhere; }
.error .problem { opacity: .8; font-size: .93em; flex-basis: 100%; }
button {
  font: inherit; color: inherit; min-height: 2rem; padding: .2rem .8rem; cursor: pointer;
  background: color-mix(in srgb, currentColor 8%, transparent); border: 1px solid color-mix(in srgb, currentColor 30%, transparent); border-radius: 8px;
}
button:focus-visible { outline: 2px solid Highlight; outline-offset: 2px; }
button:disabled { opacity: .5; cursor: default; }
dialog { max-width: min(34rem, 92vw); padding: 1rem 1.1rem; border: 1px solid color-mix(in srgb, CanvasText 22%, transparent); border-radius: 12px; background: Canvas; color: CanvasText; }
dialog::backdrop { background: #0006; }
dialog h2 { margin: 0 0 .6rem; font-size: 1.05em; }
dialog pre { margin: 0 0 .8rem; padding: .5rem .6rem; max-height: 9em; overflow: auto; white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid color-mix(in srgb, CanvasText 22%, transparent); border-radius: 8px; font: 13px/1.4 ui-monospace, monospace; unicode-bidi: plaintext; }
dialog .actions { display: flex; gap: .6rem; justify-content: flex-end; }
`;

/** Milliseconds for which the agreeing button of a question is disabled, so that a click in passing does nothing. */
const READING_TIME = 600;

/** Characters that hide or reorder others: they are shown by their code. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** `text` with invisible characters made visible. */
export function visibleText(text: string): string {
  return text.replace(INVISIBLE, (char) => (char === "\n" ? char : `\\u{${char.codePointAt(0)!.toString(16)}}`));
}

let sheet: CSSStyleSheet | undefined;

export class Shell {
  /** All of it, which stands wherever the app is shown. */
  readonly content: HTMLElement;
  /** The parent of the app's frame. */
  readonly stage: HTMLElement;
  private readonly root: ShadowRoot;
  private readonly loading: HTMLElement;
  private readonly error: HTMLElement;
  private readonly onretry: () => void;

  constructor(root: ShadowRoot, onretry: () => void) {
    this.root = root;
    this.onretry = onretry;
    if (!sheet) {
      sheet = new CSSStyleSheet();
      sheet.replaceSync(STYLES);
    }
    // A constructed sheet is not an inline style, which the page's policy may forbid.
    root.adoptedStyleSheets = [sheet];
    this.error = part("div", "note error", "alert");
    this.stage = part("div", "stage");
    this.loading = part("div", "note loading", "status");
    this.error.hidden = this.loading.hidden = true;
    this.content = part("div", "content");
    this.content.tabIndex = -1;
    this.content.append(this.error, this.stage, this.loading);
  }

  showLoading(title: string): void {
    this.error.hidden = true;
    this.error.replaceChildren();
    this.loading.replaceChildren(part("span", "spinner"), text("span", `Loading ${title}…`));
    this.loading.hidden = false;
  }

  showApp(): void {
    this.loading.hidden = this.error.hidden = true;
    this.loading.replaceChildren();
    this.error.replaceChildren();
  }

  /** Show the fallback in place of the app, or above a frame that stays. */
  showError(fallback: string, problem: string): void {
    this.loading.hidden = true;
    this.loading.replaceChildren();
    const retry = text("button", "Try again");
    retry.setAttribute("part", "retry");
    retry.addEventListener("click", () => this.onretry());
    this.error.replaceChildren(text("p", fallback), retry, part("p", "problem"));
    this.error.lastElementChild!.textContent = problem;
    this.error.hidden = false;
  }

  /** The frame has the theme of the host: a page without a theme of its own follows `prefers-color-scheme`, which is this. */
  setTheme(theme: "light" | "dark" | undefined): void {
    this.stage.style.colorScheme = theme ?? "";
  }

  /** Whether the frame has all of the height. */
  setFrame({ fills }: { fills: boolean }): void {
    this.stage.classList.toggle("fills", fills);
  }

  /** Ask the person; false for a no, for Escape, and after `signal` has aborted. One question at a time: others are false. */
  ask(question: string, subject: string, action: string, signal: AbortSignal): Promise<boolean> {
    if (this.root.querySelector("dialog") || signal.aborted) return Promise.resolve(false);
    const dialog = document.createElement("dialog");
    const heading = text("h2", visibleText(question));
    heading.id = "question";
    dialog.setAttribute("aria-labelledby", heading.id);
    dialog.setAttribute("part", "dialog");
    const actions = part("div", "actions");
    const [cancel, agree] = [text("button", "Cancel"), text("button", action)];
    agree.disabled = true;
    cancel.autofocus = true;
    actions.append(cancel, agree);
    dialog.append(heading, text("pre", visibleText(subject)), actions);
    this.root.append(dialog);
    return new Promise((resolve) => {
      const timer = setTimeout(() => (agree.disabled = false), READING_TIME);
      const end = (answer: boolean): void => {
        clearTimeout(timer);
        signal.removeEventListener("abort", abort);
        dialog.close();
        dialog.remove();
        resolve(answer);
      };
      const abort = (): void => end(false);
      signal.addEventListener("abort", abort);
      cancel.addEventListener("click", () => end(false));
      // A page's script can click nothing here; a script of the host page could as well open the link itself.
      agree.addEventListener("click", ({ isTrusted }) => isTrusted && end(true));
      dialog.addEventListener("cancel", () => end(false));
      dialog.showModal();
    });
  }
}

function part(tag: string, classes: string, role?: string): HTMLElement {
  const element = document.createElement(tag);
  element.className = classes;
  element.setAttribute("part", classes.split(" ").at(-1)!);
  if (role) element.setAttribute("role", role);
  return element;
}

function text<Tag extends keyof HTMLElementTagNameMap>(tag: Tag, content: string): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  element.textContent = content;
  return element;
}
