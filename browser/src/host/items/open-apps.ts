/** The apps of this document that are open in a panel or in the workspace: at most one of each. */
import type { DisplayMode } from "./item";

/** The place of an open app. */
export type Place = "panel" | "workspace";

/** An open app, as far as the others must know it. */
export interface OpenApp {
  readonly id: string | null;
  /** Close it, because another app takes its place; false if the page around it refused. */
  giveWay(): boolean;
}

const open: Record<Place, OpenApp | null> = { panel: null, workspace: null };
const watchers = new Set<() => void>();

/** Make room for `app`: the app that is there closes. False if it stays. */
export function makeRoom(place: Place, app: OpenApp): boolean {
  const there = open[place];
  return there === null || there === app || there.giveWay();
}

/** `app` is now at `place`, and nowhere else; null: it is closed. */
export function setPlace(app: OpenApp, place: Place | null): void {
  for (const each of ["panel", "workspace"] as const) if (open[each] === app) open[each] = null;
  if (place) open[place] = app;
  for (const notify of [...watchers]) notify();
}

/** Whether the app with this id is open; an app without an id never is. */
export function isViewed(id: string | null): boolean {
  return id !== null && Object.values(open).some((app) => app?.id === id);
}

/** Call `notify` when an app opens or closes. Returns the end of it. */
export function watchOpenApps(notify: () => void): () => void {
  watchers.add(notify);
  return () => watchers.delete(notify);
}

/** The place of a display mode; null in the flow. */
export function placeOf(mode: DisplayMode, hasSpace: boolean): Place | null {
  if (mode === "inline") return null;
  return mode === "pip" && hasSpace ? "workspace" : "panel";
}

/** The display mode of a place. */
export function modeAt(place: Place | null): DisplayMode {
  if (place === null) return "inline";
  return place === "panel" ? "fullscreen" : "pip";
}
