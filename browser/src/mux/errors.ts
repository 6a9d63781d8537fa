/** A frame that violates the bridge protocol. */
export class MuxError extends Error {
  readonly code: string;

  constructor(code: string, detail: string) {
    super(detail);
    this.name = "MuxError";
    this.code = code;
  }
}
