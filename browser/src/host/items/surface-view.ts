/** The elements of a surface: the card in the flow, the tile, the panel and the workspace. One of them shows the content. */
import type { DisplayMode } from "./item";
import { modeAt, type Place } from "./open-apps";
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
  toStart: string;
  toEnd: string;
}

export const LABELS: SurfaceLabels = {
  open: "Open",
  viewing: "Viewing",
  close: "Close",
  toPanel: "Open in a panel",
  toWorkspace: "Open beside the conversation",
  toInline: "Back to the conversation",
  toStart: "To the start of the panel",
  toEnd: "To the end of the panel",
};

export interface SurfaceActions {
  /** The person chose a mode, or with "inline" to return. */
  choose(mode: DisplayMode): void;
  /** The person closes the panel or the workspace. */
  dismiss(): void;
  /** The browser closed the panel by itself. */
  dismissed(): void;
}

/** The state that the view shows. */
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
  /** The app in the flow has a border; it always has one around the buttons for its modes. */
  bordered: boolean;
  labels: SurfaceLabels;
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
  private readonly tools: { label: keyof SurfaceLabels; mode: DisplayMode | null; button: HTMLButtonElement }[] = [];

  constructor(host: HTMLElement, actions: SurfaceActions) {
    this.actions = actions;
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
    this.panel = make("dialog", { part: "panel" }, this.guard("toEnd", () => this.focusLast()), ...this.body("panel", number), this.guard("toStart", () => this.focusFirst()));
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
    this.state.textContent = isViewing ? state.labels.viewing : state.labels.open;
    setAttributes(this.tile, { "data-viewing": isViewing, "aria-expanded": String(isViewing), "aria-description": state.label });
    for (const region of [this.panel, this.workspace]) {
      const heading = region.querySelector("h2")!.id;
      setAttributes(region, { "aria-label": state.label, "aria-labelledby": state.label === null ? heading : null });
    }
    for (const { label, mode, button } of this.tools) {
      setAttributes(button, { title: state.labels[label], "aria-label": state.labels[label] });
      // To the flow, an app with a tile does not return: it closes.
      button.hidden = mode !== null && (!state.modes.includes(mode) || (mode === "inline" && hasTile));
    }
    const hasBar = state.modes.some((mode) => mode !== "inline");
    this.cardBar.hidden = !hasBar;
    this.card.classList.toggle("plain", !hasBar && !state.bordered);
  }

  /** Focus what names the app at `place`: its region is announced, and the next key reaches its buttons. */
  focusHeading(place: Place): void {
    const region = place === "panel" ? this.panel : this.workspace;
    region.querySelector("h2")?.focus();
  }

  /**
   * Keeps the focus in the panel, and sends it to the other end. A modal dialog alone lets it go on to the browser's
   * buttons, and Chromium from there into frames behind the dialog.
   */
  private guard(label: keyof SurfaceLabels, redirect: () => void): HTMLButtonElement {
    const button = make("button", { class: "guard", type: "button" });
    button.addEventListener("focus", redirect);
    this.tools.push({ label, mode: null, button });
    return button;
  }

  private focusFirst(): void {
    [...this.panel.querySelectorAll<HTMLElement>(".tool")].find((button) => !button.hidden)?.focus();
  }

  private focusLast(): void {
    const content = this.panel.querySelector("slot")!.assignedElements()[0];
    (content?.querySelector("iframe") ?? this.panel.querySelector<HTMLElement>("[data-action=close]"))?.focus();
  }

  private body(place: Place, number: number): Node[] {
    const heading = this.name(make("h2", { id: `${place}-${number}`, tabindex: "-1" }));
    const close = this.button("close", "close", null, () => this.actions.dismiss());
    const bar = make("header", { class: "bar", part: "bar" }, heading, ...this.modeButtons(place), close);
    return [bar, make("slot", { name: place })];
  }

  /** Buttons for the other modes. */
  private modeButtons(at: Place | null): HTMLButtonElement[] {
    const all: [DisplayMode, IconName, keyof SurfaceLabels][] = [
      ["inline", "inline", "toInline"],
      ["pip", "workspace", "toWorkspace"],
      ["fullscreen", "panel", "toPanel"],
    ];
    const others = all.filter(([mode]) => mode !== modeAt(at));
    return others.map(([mode, sign, label]) => this.button(sign, label, mode, () => this.actions.choose(mode)));
  }

  private button(sign: IconName, label: keyof SurfaceLabels, mode: DisplayMode | null, act: () => void): HTMLButtonElement {
    const button = make("button", { class: "tool", part: "button", type: "button", "data-action": mode ?? "close" }, icon(sign));
    button.addEventListener("click", act);
    this.tools.push({ label, mode, button });
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
