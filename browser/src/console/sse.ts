/** Server-sent events from a fetch response: the text format of the HTML standard, section 9.2.6. */

export interface ServerEvent {
  event: string;
  data: string;
}

/** Takes text in any pieces, yields whole events; `onComment` is called for comment lines, which servers send as pings. */
export class EventParser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  private readonly onComment: () => void;

  constructor(onComment: () => void = () => {}) {
    this.onComment = onComment;
  }

  push(text: string): ServerEvent[] {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    const events: ServerEvent[] = [];
    for (const line of lines) {
      const event = this.line(line);
      if (event) events.push(event);
    }
    return events;
  }

  private line(line: string): ServerEvent | undefined {
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) this.onComment();
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.event = value;
    if (name === "data") this.data.push(value);
    return undefined;
  }

  private dispatch(): ServerEvent | undefined {
    const event = { event: this.event || "message", data: this.data.join("\n") };
    const empty = this.data.length === 0;
    this.event = "";
    this.data = [];
    return empty ? undefined : event;
  }
}

/** The events of a response, as they arrive. */
export async function* events(response: Response, onComment?: () => void): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const parser = new EventParser(onComment);
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
