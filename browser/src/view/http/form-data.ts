/** Serializes forms with files, since WebKit cannot read them from a `Request` in an opaque origin. */

/** `form` as browsers serialize it (HTML, "multipart/form-data encoding algorithm"). */
export function serializeForm(form: FormData): Blob {
  // The type of a blob is in lower case.
  const boundary = `----webmcp-gateway-${Math.random().toString(36).slice(2)}`;
  const normalizeLines = (text: string): string => text.replace(/\r\n?|\n/g, "\r\n");
  const escapeName = (name: string): string => name.replace(/\n/g, "%0A").replace(/\r/g, "%0D").replace(/"/g, "%22");
  const parts: BlobPart[] = [];
  for (const [name, value] of form) {
    const head = `--${boundary}\r\nContent-Disposition: form-data; name="${escapeName(normalizeLines(name))}"`;
    if (typeof value === "string") parts.push(`${head}\r\n\r\n${normalizeLines(value)}\r\n`);
    else parts.push(`${head}; filename="${escapeName(value.name)}"\r\nContent-Type: ${value.type || "application/octet-stream"}\r\n\r\n`, value, "\r\n");
  }
  return new Blob([...parts, `--${boundary}--\r\n`], { type: `multipart/form-data; boundary=${boundary}` });
}

export function withSerializedForms(native: typeof Request): typeof Request {
  return new Proxy(native, {
    construct(_, given: [RequestInfo | URL, RequestInit?], made: Function) {
      const [input, init] = given;
      const body = init?.body;
      const files = body instanceof FormData && [...body.values()].some((value) => value instanceof Blob);
      return Reflect.construct(native, files ? [input, { ...init, body: serializeForm(body) }] : given, made) as Request;
    },
  });
}
