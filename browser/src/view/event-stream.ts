/** The lines of an event stream, and the events that they make (HTML, 9.2.6). */

/** As browsers have it without any `retry`, in milliseconds. */
export const RETRY = 3000;
/** What does not fit into 64 bits is no time for browsers. */
const LONGEST = 2n ** 64n;

export interface StreamEvent {
  type: string;
  data: string;
  id: string;
}

/** What an event source remembers from one connection to the next. */
export interface Remembered {
  /** The last event ID, after the last empty line. */
  id: string;
  retry: number;
}

/** Takes the text of a stream in pieces of any size, and gives the events that each ends. */
export function createEventParser(remembered: Remembered): (text: string) => Generator<StreamEvent> {
  let rest = "";
  let half = false;
  let type = "";
  let data: string[] = [];
  let { id } = remembered;

  function take(line: string): void {
    const [, field, value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (field === "data") data.push(value);
    else if (field === "event") type = value;
    else if (field === "id" && !value.includes("\0")) id = value;
    else if (field === "retry" && /^[0-9]*$/.test(value) && BigInt(value) < LONGEST) remembered.retry = value ? Number(value) : RETRY;
  }

  return function* parse(text) {
    // The CR at the end of the piece before may have been half of a CRLF.
    const lines = (rest + (half ? text.replace(/^\n/, "") : text)).split(/\r\n?|\n/);
    half = text ? text.endsWith("\r") : half;
    rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line) {
        take(line);
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
