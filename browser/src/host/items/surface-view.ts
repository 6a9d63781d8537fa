/** The elements of a surface: the card in the flow, the tile, the panel and the workspace. One of them shows the content. */
import type { DisplayMode } from "./item";
import type { Place } from "./open-apps";
import { adoptStyles, icon, make, setAttributes, type IconName } from "./dom";
import { surfaceStyles } from "./surface-styles";

/** The words on a surface; a page that is not English gives its own. */
export interface SurfaceLabels {
  open: string;
  viewing: string;
  close: string;
  toPanel: string;
  toWorkspace: string;
  toInline: string;
}

export const LABELS: SurfaceLabels = {
  open: "Open",
  viewing: "Viewing",
  close: "Close",
  toPanel: "Open in a panel",
  toWorkspace: "Open beside the conversation",
  toInline: "Back to the conversation",
};

export interface SurfaceActions {
  /** The person chose a mode, or with "inline" to return. */
  choose(mode: DisplayMode): void;
  /** The person closes the panel or the workspace. */
  dismiss(): void;
  /** The browser closed the panel by itself. */
  dismissed(): void;
}

/** What the view shows. */
export interface SurfaceState {
  title: string;
  /** The name for assistive technology, if it is not the title. */
  label: string | null;
  place: Place | null;
  /** The app has a tile in the flow, unless it stands there itself. */
  hasTile: boolean;
  isViewing: boolean;
  /** The modes that the app can change to. */
  modes: readonly DisplayMode[];
}

let surfaces = 0;

/** Builds and updates the elements in a shadow root of `host`; `host`'s child, the content, changes its slot only. */
export class SurfaceView {
  readonly tile: HTMLButtonElement;
  readonly panel: HTMLDialogElement;
  readonly workspace: HTMLElement;
  private readonly card: HTMLElement;
  private readonly cardBar: HTMLElement;
  private readonly names: HTMLElement[] = [];
  private readonly state = make("span", { class: "state", part: "tile-state" });
  private readonly actions: SurfaceActions;
  private readonly labels: SurfaceLabels;
  private readonly tools: { mode: DisplayMode; at: Place | null; button: HTMLButtonElement }[] = [];

  constructor(host: HTMLElement, actions: SurfaceActions, labels: SurfaceLabels) {
    this.actions = actions;
    this.labels = labels;
    const root = host.attachShadow({ mode: "open" });
    adoptStyles(root, surfaceStyles);
    this.tile = make(
      "button",
      { class: "tile", part: "tile", type: "button" },
      make("span", { class: "sign", "aria-hidden": "true" }, icon("app")),
      make("span", { class: "words" }, this.name(make("span", { class: "name", part: "tile-title" })), this.state),
    );
    this.cardBar = make("div", { class: "bar", part: "bar" }, this.name(make("span", { class: "name" })), ...this.modeButtons(null));
    this.card = make("div", { class: "card", part: "card" }, this.cardBar, make("slot", { name: "inline" }));
    const number = (surfaces += 1);
    this.panel = make("dialog", { part: "panel" }, ...this.body("panel", number));
    this.workspace = make(
      "section",
      { class: "workspace", part: "workspace", popover: "manual" },
      ...this.body("workspace", number),
    );
    root.append(this.tile, this.card, this.panel, this.workspace);
    this.listen();
  }

  update(state: SurfaceState): void {
    const { place, hasTile, isViewing } = state;
    for (const name of this.names) name.textContent = state.title;
    const inFlow = place === null && !hasTile;
    this.card.hidden = !inFlow;
    this.tile.hidden = inFlow;
    this.state.textContent = isViewing ? this.labels.viewing : this.labels.open;
    setAttributes(this.tile, { "data-viewing": isViewing, "aria-expanded": String(isViewing), "aria-description": state.label });
    for (const region of [this.panel, this.workspace]) {
      const heading = region.querySelector("h2")!.id;
      setAttributes(region, { "aria-label": state.label, "aria-labelledby": state.label === null ? heading : null });
    }
    for (const { mode, at, button } of this.tools) button.hidden = !state.modes.includes(mode) || (at !== null && hasTile && mode === "inline");
    const others = state.modes.some((mode) => mode !== "inline");
    this.cardBar.hidden = !others;
  }

  /** Focus what names the app at `place`: its region is announced, and the next key reaches its buttons. */
  focusHeading(place: Place): void {
    const region = place === "panel" ? this.panel : this.workspace;
    region.querySelector("h2")?.focus();
  }

  private body(place: Place, number: number): Node[] {
    const heading = this.name(make("h2", { id: `${place}-${number}`, tabindex: "-1" }));
    const close = this.button("close", this.labels.close, () => this.actions.dismiss());
    close.dataset["action"] = "close";
    const bar = make("header", { class: "bar", part: "bar" }, heading, ...this.modeButtons(place), close);
    return [bar, make("slot", { name: place })];
  }

  /** Buttons for the other modes. */
  private modeButtons(at: Place | null): HTMLButtonElement[] {
    const all: [DisplayMode, IconName, string][] = [
      ["inline", "inline", this.labels.toInline],
      ["pip", "workspace", this.labels.toWorkspace],
      ["fullscreen", "panel", this.labels.toPanel],
    ];
    const here: DisplayMode = at === null ? "inline" : at === "panel" ? "fullscreen" : "pip";
    return all.flatMap(([mode, sign, label]) => {
      if (mode === here) return [];
      const button = this.button(sign, label, () => this.actions.choose(mode));
      button.dataset["action"] = mode;
      this.tools.push({ mode, at, button });
      return [button];
    });
  }

  private button(sign: IconName, label: string, act: () => void): HTMLButtonElement {
    const button = make("button", { class: "tool", part: "button", type: "button", title: label, "aria-label": label }, icon(sign));
    button.addEventListener("click", act);
    return button;
  }

  private name<Named extends HTMLElement>(element: Named): Named {
    this.names.push(element);
    return element;
  }

  private listen(): void {
    const { panel, workspace, actions } = this;
    for (const region of [panel, workspace]) {
      region.addEventListener("keydown", (event) => {
        if (event.key !== "Escape" || event.defaultPrevented) return;
        // Else the browser closes the dialog itself, which the page around could not prevent.
        event.preventDefault();
        event.stopPropagation();
        actions.dismiss();
      });
    }
    panel.addEventListener("cancel", (event) => {
      if (event.target !== panel) return;
      event.preventDefault();
      actions.dismiss();
    });
    panel.addEventListener("close", () => actions.dismissed());
  }
}
