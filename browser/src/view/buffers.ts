/** A long body as one buffer, put together bit by bit: Chromium does it in one go, and the page does nothing else meanwhile. */

import { likeFetch } from "./like-fetch";

type Bytes = Uint8Array<ArrayBuffer>;

/** Bytes after which others have their turn; a body of no more is left to the browser. */
const PIECE = 1 << 20;

/** `rest` waits until others had their turn. */
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

/** `fetch`, of whose answers the long ones are read so. */
export function withPieces(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  // A page may replace timers, and hidden ones have slow ones.
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
