/** Assembles a long body in pieces: Chromium does it in one step, which blocks the page's thread. */

import { createTurns } from "../turns";
import { wrapFetch } from "./wrap-fetch";

type Bytes = Uint8Array<ArrayBuffer>;

/** Bytes between two pauses; a body of no more is left to the browser. */
const MAX_PIECE = 1 << 20;

/** `yieldToPage` yields to other tasks. */
async function joinChunks({ body }: Response, yieldToPage: () => Promise<unknown>): Promise<Bytes> {
  const chunks: Bytes[] = [];
  let size = 0;
  const keep = (chunk: Bytes): void => {
    chunks.push(chunk);
    size += chunk.length;
  };
  await body!.pipeTo(new WritableStream({ write: keep }));
  const bytes = new Uint8Array(size);
  let at = 0;
  let rested = 0;
  for (const chunk of chunks) {
    for (let from = 0; from < chunk.length; from += MAX_PIECE) {
      const piece = chunk.subarray(from, from + MAX_PIECE);
      bytes.set(piece, at);
      at += piece.length;
      if (at - rested < MAX_PIECE) continue;
      rested = at;
      await yieldToPage();
    }
  }
  return bytes;
}

/** Wraps `fetch` so that long bodies are read in pieces. */
export function withJoinedBuffers(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  const yieldToPage = createTurns(); // timers wait for 4 ms each from the sixth on (HTML, 8.7)

  function readInPieces(response: Response): Response {
    if (!response.body || Number(response.headers.get("content-length") ?? Infinity) <= MAX_PIECE) return response;
    const replace = (name: "arrayBuffer" | "bytes", read: (bytes: Bytes) => unknown): void => {
      const native = response[name] as (() => Promise<unknown>) | undefined;
      const value = async (): Promise<unknown> => (response.bodyUsed ? native!.call(response) : read(await joinChunks(response, yieldToPage)));
      if (native) Object.defineProperty(response, name, { value, configurable: true, writable: true });
    };
    replace("arrayBuffer", ({ buffer }) => buffer);
    replace("bytes", (bytes) => bytes);
    return response;
  }

  return wrapFetch(fetch, async (...given) => readInPieces(await fetch(...given)));
}
