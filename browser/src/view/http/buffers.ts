/** Assembles a long body in pieces: Chromium does it in one step, which blocks the page's thread. */

import { likeFetch } from "./like-fetch";

type Bytes = Uint8Array<ArrayBuffer>;

/** Bytes between two pauses; a body of no more is left to the browser. */
const PIECE = 1 << 20;

/** `rest` yields to other tasks. */
async function joined({ body }: Response, rest: () => Promise<unknown>): Promise<Bytes> {
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
    bytes.set(chunk, at);
    at += chunk.length;
    if (at - rested < PIECE) continue;
    rested = at;
    await rest();
  }
  return bytes;
}

/** Wraps `fetch` so that long bodies are read in pieces. */
export function withPieces(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  // A page may replace timers, and hidden pages have slow ones.
  const { setTimeout } = globalThis;
  const rest = async (): Promise<unknown> => document.hidden || new Promise((goOn) => setTimeout(goOn));

  function inPieces(response: Response): Response {
    if (!response.body || Number(response.headers.get("content-length") ?? Infinity) <= PIECE) return response;
    const replace = (name: "arrayBuffer" | "bytes", read: (bytes: Bytes) => unknown): void => {
      const native = response[name] as (() => Promise<unknown>) | undefined;
      const value = async (): Promise<unknown> => (response.bodyUsed ? native!.call(response) : read(await joined(response, rest)));
      if (native) Object.defineProperty(response, name, { value, configurable: true, writable: true });
    };
    replace("arrayBuffer", ({ buffer }) => buffer);
    replace("bytes", (bytes) => bytes);
    return response;
  }

  return likeFetch(fetch, async (...given) => inPieces(await fetch(...given)));
}
