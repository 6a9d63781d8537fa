/** The place of an app: in the flow, or from a tile there in a panel or in the workspace. Its frame is never moved. */
import type { DisplayMode } from "./item";
import { isViewed, makeRoom, modeAt, placeOf, setPlace, watchOpenApps, type OpenApp, type Place } from "./open-apps";
import { LABELS, SurfaceView, type SurfaceLabels } from "./surface-view";
import { follow, hasSpace, watchSpace } from "./workspace";

/** The reason for which an app closes: the person or the page asked, another app takes its place, or the host's code did it. */
export type CloseReason = "person" | "page" | "replaced" | "host" | "removed" | "undeclared";
export type OpenReason = "person" | "page" | "host";

/** The detail of `mcp-app-before-open`, `mcp-app-open`, `mcp-app-before-close` and `mcp-app-close`. */
export interface SurfaceEvent {
  id: string | null;
  mode: DisplayMode;
  reason: CloseReason | OpenReason;
}

export interface SurfaceOptions {
  /** The app: its frame is within this element. */
  content: HTMLElement;
  /** The element at which the events are dispatched. */
  events: EventTarget;
  /** The content was placed elsewhere, in this mode. */
  onplaced: (mode: DisplayMode) => void;
}

export interface SurfaceDescription {
  title: string;
  /** The name for assistive technology, if it is not the title. */
  label: string | null;
  id: string | null;
  /** The mode in which the tile opens the app; with inline, the app stands in the flow without a tile. */
  home: DisplayMode;
  bordered: boolean;
  labels: Partial<SurfaceLabels>;
}

export class Surface implements OpenApp {
  /** Stands where the app stands in the flow. */
  readonly element = document.createElement("div");
  private readonly options: SurfaceOptions;
  private readonly view: SurfaceView;
  private described: SurfaceDescription = { title: "", label: null, id: null, home: "inline", bordered: false, labels: {} };
  /** The mode that is wanted; where the workspace has no space, the panel has it. */
  private wanted: DisplayMode = "inline";
  private place: Place | null = null;
  private modes: readonly DisplayMode[] = [];
  private returnTo: HTMLElement | null = null;
  private stopFollowing: (() => void) | null = null;
  private stopWatching: (() => void) | null = null;

  constructor(options: SurfaceOptions) {
    this.options = options;
    this.view = new SurfaceView(this.element, {
      choose: (mode) => void (mode === "inline" ? this.close("person") : this.open(mode, "person")),
      dismiss: () => void this.close("person"),
      dismissed: () => this.place === "panel" && !this.view.panel.open && this.leave("person"),
    });
    this.element.append(options.content);
    this.view.tile.addEventListener("click", () => void this.activateTile());
    this.render();
  }

  get id(): string | null {
    return this.described.id;
  }

  /** The mode in which the app is shown now. */
  get mode(): DisplayMode {
    return modeAt(this.place);
  }

  /** Whether the app is in sight: it stands in the flow, or is open. */
  get isShown(): boolean {
    return this.place !== null || this.described.home === "inline";
  }

  /** The surface is in the document. */
  connect(): void {
    this.stopWatching ??= this.watch();
    this.render();
  }

  /** The surface has left the document: whatever is open is closed without a question. */
  disconnect(): void {
    if (this.place) this.leave("removed");
    this.stopWatching?.();
    this.stopWatching = null;
  }

  /** Change the words, the id, or the mode in which the tile opens the app. */
  describe(changes: Partial<SurfaceDescription>): void {
    this.described = { ...this.described, ...changes };
    this.render();
  }

  /**
   * The modes that both the app and the page around it have, once they are known. An app that is open in another one
   * returns to the flow, and stays there.
   */
  offer(modes: readonly DisplayMode[]): void {
    this.modes = modes;
    if (!modes.includes(this.described.home)) this.described = { ...this.described, home: "inline" };
    if (this.place && !modes.includes(this.wanted)) this.leave("undeclared");
    this.render();
  }

  /** Show the app in `mode`; returns the mode that applies then, which is the former one if the page around refused. */
  open(mode: DisplayMode, reason: OpenReason = "host"): DisplayMode {
    if (mode === "inline") {
      if (this.place) this.close(reason);
      return this.mode;
    }
    if (this.place && mode === this.wanted) {
      this.view.focusHeading(this.place);
      return this.mode;
    }
    if (!this.element.isConnected || !this.ask("mcp-app-before-open", mode, reason)) return this.mode;
    // After the question: the page around may have made space for the workspace.
    const place = placeOf(mode, hasSpace())!;
    if (!makeRoom(place, this)) return this.mode;
    this.returnTo = this.place ? this.returnTo : focused();
    this.wanted = mode;
    this.move(place, reason !== "host" || place === "panel");
    this.notify("mcp-app-open", this.mode, reason);
    return this.mode;
  }

  /** Return the app to the flow, or to its tile. False if the page around refused. */
  close(reason: CloseReason = "host"): boolean {
    if (!this.place) return true;
    if (!this.ask("mcp-app-before-close", this.mode, reason)) return false;
    this.leave(reason);
    return true;
  }

  giveWay(): boolean {
    return this.close("replaced");
  }

  private watch(): () => void {
    const render = (): void => this.render();
    const stop = watchOpenApps(render);
    addEventListener("resize", render);
    return () => {
      stop();
      removeEventListener("resize", render);
    };
  }

  private activateTile(): void {
    if (this.place) this.view.focusHeading(this.place);
    else this.open(this.described.home, "person");
  }

  /** The app closes now. */
  private leave(reason: CloseReason): void {
    const mode = this.mode;
    const hadFocus = this.element.matches(":focus-within") || reason === "person";
    this.wanted = "inline";
    this.move(null, false);
    if (hadFocus && reason !== "removed" && reason !== "replaced") this.returnFocus();
    this.returnTo = null;
    this.notify("mcp-app-close", mode, reason);
  }

  private returnFocus(): void {
    if (!this.view.tile.hidden) this.view.tile.focus();
    else if (this.returnTo?.isConnected && this.returnTo !== document.body) this.returnTo.focus();
    else (this.options.content.querySelector("iframe") ?? this.options.content).focus();
  }

  private move(place: Place | null, takesFocus: boolean): void {
    const { panel, workspace } = this.view;
    this.stopFollowing?.();
    this.stopFollowing = null;
    this.place = place;
    if (place !== "panel" && panel.open) panel.close();
    if (place !== "workspace" && workspace.matches(":popover-open")) workspace.hidePopover();
    this.render();
    if (place === "panel" && !panel.open) panel.showModal();
    if (place === "workspace" && !workspace.matches(":popover-open")) workspace.showPopover();
    this.stopFollowing = this.followSpace(place);
    lockScroll(this, place === "panel");
    setPlace(this, place);
    this.options.onplaced(this.mode);
    if (place && takesFocus) this.view.focusHeading(place);
  }

  /** The workspace moves to a panel if the space becomes short, and back. */
  private followSpace(place: Place | null): (() => void) | null {
    if (this.wanted !== "pip") return null;
    if (place === "workspace") return follow(this.view.workspace, () => hasSpace() || this.relocate("panel"));
    return place === "panel" ? watchSpace(() => hasSpace() && this.relocate("workspace")) : null;
  }

  private relocate(place: Place): void {
    if (makeRoom(place, this)) this.move(place, this.element.matches(":focus-within"));
  }

  private render(): void {
    const { place } = this;
    const { title, label, id, home, bordered, labels } = this.described;
    const hasTile = home !== "inline";
    this.options.content.slot = place ?? (hasTile ? "closed" : "inline");
    const modes = this.modes.filter((mode) => mode !== "pip" || hasSpace());
    const isViewing = place !== null || isViewed(id);
    this.view.update({ title, label, place, hasTile, isViewing, modes, bordered, labels: { ...LABELS, ...labels } });
  }

  private ask(name: string, mode: DisplayMode, reason: CloseReason | OpenReason): boolean {
    return this.options.events.dispatchEvent(this.event(name, true, mode, reason));
  }

  private notify(name: string, mode: DisplayMode, reason: CloseReason | OpenReason): void {
    this.options.events.dispatchEvent(this.event(name, false, mode, reason));
  }

  private event(name: string, cancelable: boolean, mode: DisplayMode, reason: CloseReason | OpenReason): CustomEvent<SurfaceEvent> {
    return new CustomEvent(name, { bubbles: true, composed: true, cancelable, detail: { id: this.id, mode, reason } });
  }
}

const locking = new Set<Surface>();

/** Behind a panel the page does not scroll. */
function lockScroll(surface: Surface, locks: boolean): void {
  if (locks) locking.add(surface);
  else if (!locking.delete(surface)) return;
  document.documentElement.style.overflow = locking.size ? "hidden" : "";
}

/** The focused element, also within shadow trees. */
function focused(): HTMLElement | null {
  let active = document.activeElement;
  while (active?.shadowRoot?.activeElement) active = active.shadowRoot.activeElement;
  return active instanceof HTMLElement ? active : null;
}
