/** A long body as one buffer, put together bit by bit: Chromium does it in one go, and the page does nothing else meanwhile. */

type Bytes = Uint8Array<ArrayBuffer>;

/** Bytes after which others have their turn; a body of no more is left to the browser. */
const PIECE = 1 << 20;

/** What the runtime's `fetch` gave, of which it is not known that it is short. */
function isLong(response: Response): boolean {
  const { type, body, bodyUsed, headers } = response;
  return type === "basic" && !!body && !bodyUsed && !(Number(headers.get("content-length") ?? Infinity) <= PIECE);
}

/** Replaces what gives a `Response` as one buffer. A page may replace timers, and hidden ones have slow ones. */
export function joinInPieces({ Response: { prototype }, setTimeout }: Pick<typeof globalThis, "Response" | "setTimeout">): void {
  async function joined({ body }: Response): Promise<Bytes> {
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
      if (at - rested < PIECE || document.hidden) continue;
      rested = at;
      await new Promise((goOn) => setTimeout(goOn));
    }
    return bytes;
  }

  const { arrayBuffer, bytes } = prototype;
  prototype.arrayBuffer = async function () {
    return isLong(this) ? (await joined(this)).buffer : arrayBuffer.call(this);
  };
  // Not every browser has it.
  if (bytes as unknown) prototype.bytes = async function () {
    return isLong(this) ? joined(this) : bytes.call(this);
  };
}
