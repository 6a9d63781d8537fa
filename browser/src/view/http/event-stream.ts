/** Parses an event stream into events (HTML, 9.2.6). */

/** Browsers' default without any `retry`, in milliseconds. */
export const RETRY = 3000;
/** Browsers ignore a time that does not fit into 64 bits. */
const LONGEST = 2n ** 64n;

export interface StreamEvent {
  type: string;
  data: string;
  id: string;
}

/** The state that an event source keeps between connections. */
export interface StreamState {
  /** The last event ID, after the last empty line. */
  id: string;
  retry: number;
}

/** Takes the text of a stream in pieces of any size, and yields the events that each completes. */
export function createEventParser(remembered: StreamState): (text: string) => Generator<StreamEvent> {
  let rest = "";
  let half = false;
  let type = "";
  let data: string[] = [];
  let { id } = remembered;

  function readField(line: string): void {
    const [, field, value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (field === "data") data.push(value);
    else if (field === "event") type = value;
    else if (field === "id" && !value.includes("\0")) id = value;
    else if (field === "retry" && /^[0-9]*$/.test(value) && BigInt(value) < LONGEST) remembered.retry = value ? Number(value) : RETRY;
  }

  return function* parse(text) {
    // The CR at the end of the previous piece may have been half of a CRLF.
    const lines = (rest + (half ? text.replace(/^\n/, "") : text)).split(/\r\n?|\n/);
    half = text ? text.endsWith("\r") : half;
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line) {
        readField(line);
        continue;
      }
      remembered.id = id;
      const event = { type: type || "message", data: data.join("\n"), id };
      const whole = data.length > 0;
      type = "";
      data = [];
      if (whole) yield event;
    }
  };
}
