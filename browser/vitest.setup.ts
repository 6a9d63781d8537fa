import { afterEach, vi } from "vitest";

/** How long to wait for an event, in milliseconds: on a busy machine, vitest's own second may pass without a turn. */
const PATIENCE = 30_000;

const { waitFor } = vi;
vi.waitFor = (callback, options) => waitFor(callback, typeof options === "number" ? options : { timeout: PATIENCE, ...options });

// One process runs all files.
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});
