/** Apps that were closed into their tiles: their pages go on unseen, so that nothing in them is lost, but not many. */

/** A page needs processes of its own; those of a long conversation would be too many. */
const MOST = 4;

export interface KeptApp {
  /** Let the page save its state, then remove it; it is loaded anew when it is opened again. */
  unload(): void;
}

const kept = new Set<KeptApp>();

/** `app` was closed; the one that was closed first of too many is unloaded. */
export function keepApp(app: KeptApp): void {
  kept.delete(app);
  kept.add(app);
  if (kept.size <= MOST) return;
  const [first] = kept;
  kept.delete(first!);
  first!.unload();
}

/** `app` is open again, or gone. */
export function releaseApp(app: KeptApp): void {
  kept.delete(app);
}
