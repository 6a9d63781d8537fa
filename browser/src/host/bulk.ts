/**
 * Bodies of requests and answers as bytes beside the frames: `$bytes` in `params`, and `BYTES` in the `_meta` of a
 * `result`, are the ids of those of the `body`.
 *
 * A page passes a `Blob` as `body`; its own `$bytes` are removed, so that it cannot refer to another's bytes.
 */
import { isBodyId, type Id, type JsonObject } from "../mux";
import { randomId, type GatewayHttp, type OnUploadProgress } from "./gateway-http";

/** Bytes of the largest body; a larger one is not sent, and its call contains `TOO_LARGE` instead. */
const MAX_BYTES = 64 * 1024 * 1024;
const TOO_LARGE = "too-large";
const BYTES = "webmcp-gateway/bytes";

/** The serializable `params` of a call, and the bytes that are sent beside them. */
export function extractBlob(given: JsonObject): { params: JsonObject; blob: Blob | null } {
  const { $bytes: _, ...params } = given;
  const args = params["arguments"] as { [name: string]: unknown } | undefined;
  if (!(args?.["body"] instanceof Blob)) return { params, blob: null };
  const { body, ...rest } = args;
  return { params: { ...params, arguments: rest as JsonObject }, blob: body as Blob };
}

/** The id of this answer's bytes; null if it has none. */
export function bytesReference(message: JsonObject): string | null {
  const result = message["result"] as { _meta?: { [BYTES]?: unknown } } | undefined;
  const name = result?._meta?.[BYTES];
  return isBodyId(name) ? name : null; // it becomes a part of a URL
}

/** The answer with its bytes. */
export function withBytes(message: JsonObject, bytes: ArrayBuffer | Blob): JsonObject {
  const { _meta: _, ...result } = message["result"] as JsonObject;
  const structuredContent = { ...(result["structuredContent"] as JsonObject), body: bytes };
  return { ...message, result: { ...result, structuredContent } } as unknown as JsonObject;
}

/** The uploads of one view, by call: the gateway has room for only one of the largest at a time. */
export class Bulk {
  private readonly http: GatewayHttp;
  private readonly inUpload = new Map<Id, number>();
  private readonly queue = new Map<Id, { size: number; start(): void }>();
  private used = 0;

  constructor(http: GatewayHttp) {
    this.http = http;
  }

  /** Upload the bytes once there is room, with progress; returns the value of `$bytes`. Call `release` when the call has ended. */
  async put(call: Id, blob: Blob, signal?: AbortSignal, sent?: OnUploadProgress): Promise<string> {
    if (blob.size > MAX_BYTES) return TOO_LARGE;
    await new Promise<void>((start) => {
      this.queue.set(call, { size: blob.size, start });
      this.startNext();
    });
    const id = randomId();
    await this.http.putBytes(id, blob, signal, sent);
    return id;
  }

  /** The call is over: release its room, and its place in the queue. */
  release(call: Id): void {
    this.queue.delete(call);
    this.used -= this.inUpload.get(call) ?? 0;
    this.inUpload.delete(call);
    this.startNext();
  }

  private startNext(): void {
    for (const [call, { size, start }] of this.queue) {
      if (this.used + size > MAX_BYTES) return;
      this.queue.delete(call);
      this.inUpload.set(call, size);
      this.used += size;
      start();
    }
  }
}
