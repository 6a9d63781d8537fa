/** The panel of the shell in place of a page, or over it: progress, and errors with their remedy. */

export interface Choice {
  label: string;
  run(): void;
}

export interface Panel {
  /** A page is loading, or not any more. */
  busy(is: boolean): void;
  /** Shows a message in place of the page. */
  show(title: string, detail: string, choices: Choice[]): void;
  hide(): void;
}

const STYLE = `
:host { all: initial }
section { position: fixed; inset: 0; display: grid; place-content: center; gap: 12px; padding: 24px; background: #fff; color: #1a1a1a; font: 15px/1.5 system-ui, sans-serif; text-align: center }
h1 { font-size: 20px; margin: 0 } p { margin: 0; max-width: 60ch; overflow-wrap: anywhere }
div { display: flex; gap: 8px; justify-content: center; flex-wrap: wrap }
button { font: inherit; padding: 6px 14px; border: 1px solid #767676; border-radius: 6px; background: #f5f5f5; color: inherit; cursor: pointer }
hr { position: fixed; inset: 0 0 auto; height: 3px; margin: 0; border: 0; background: linear-gradient(90deg, #0b57d0 40%, #a8c7fa 0) 0 0 / 250% 100%; animation: go 1.2s linear infinite }
@keyframes go { to { background-position: -250% 0 } }
@media (prefers-color-scheme: dark) { section { background: #1f1f1f; color: #eee } button { background: #333; border-color: #8a8a8a } }
@media (prefers-reduced-motion: reduce) { hr { animation: none } }`;

function element<Name extends keyof HTMLElementTagNameMap>(name: Name, ...content: (Node | string)[]): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  made.append(...content);
  return made;
}

export function createPanel(): Panel {
  const box = document.createElement("webmcp-gateway-panel");
  const root = box.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  root.adoptedStyleSheets = [sheet];
  const bar = element("hr");
  bar.setAttribute("role", "progressbar");
  bar.setAttribute("aria-label", "The page is loading");
  let message: HTMLElement | undefined;
  document.body.append(box);
  box.style.cssText = "position:relative;z-index:2147483646";
  return {
    busy(is) {
      if (is) root.append(bar);
      else bar.remove();
    },
    show(title, detail, choices) {
      message?.remove();
      const buttons = choices.map(({ label, run }) => {
        const button = element("button", label);
        button.onclick = run;
        return button;
      });
      message = element("section", element("h1", title), element("p", detail), element("div", ...buttons));
      message.setAttribute("role", "alert");
      root.append(message);
    },
    hide() {
      message?.remove();
      message = undefined;
    },
  };
}
