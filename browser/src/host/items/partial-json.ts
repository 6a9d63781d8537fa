/** The arguments of a tool call while the model still writes them: JSON that ends anywhere. */
import { isRecord } from "./item";

/** The text ended within a value. */
class Cut extends Error {}

const LITERALS: readonly [string, unknown][] = [
  ["true", true],
  ["false", false],
  ["null", null],
];
const DEPTH = 64;

/**
 * The object that `text` begins: open strings, arrays and objects end where the text ends; a number, a literal or a
 * member without its value is left out. Null if it is no object, or no JSON.
 */
export function parsePartialObject(text: string): Record<string, unknown> | null {
  try {
    const value = new Reader(text).value(0);
    return isRecord(value) ? value : null;
  } catch (error) {
    if (error instanceof Cut || error instanceof SyntaxError) return null;
    throw error;
  }
}

class Reader {
  private at = 0;
  private readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  /** The next value. Throws `Cut` if nothing of it is there. */
  value(depth: number): unknown {
    if (depth > DEPTH) throw new SyntaxError("too deep");
    const first = this.peek();
    if (first === "{") return this.object(depth + 1);
    if (first === "[") return this.array(depth + 1);
    if (first === '"') return this.string(true);
    return this.scalar();
  }

  private object(depth: number): Record<string, unknown> {
    const members: Record<string, unknown> = {};
    this.at += 1;
    this.untilCut(() => {
      while (this.peek() !== "}") {
        const key = this.string(false);
        this.expect(":");
        const value = this.value(depth);
        // As JSON.parse: `__proto__` is a member like any other.
        Object.defineProperty(members, key, { value, writable: true, enumerable: true, configurable: true });
        if (this.peek() === ",") this.at += 1;
        else if (this.peek() !== "}") throw new SyntaxError(this.rest());
      }
      this.at += 1;
    });
    return members;
  }

  private array(depth: number): unknown[] {
    const items: unknown[] = [];
    this.at += 1;
    this.untilCut(() => {
      while (this.peek() !== "]") {
        items.push(this.value(depth));
        if (this.peek() === ",") this.at += 1;
        else if (this.peek() !== "]") throw new SyntaxError(this.rest());
      }
      this.at += 1;
    });
    return items;
  }

  /** A string; with `open`, also one that has not ended. */
  private string(open: boolean): string {
    if (this.peek() !== '"') throw new SyntaxError(this.rest());
    const chars = /"(?:[^"\\]+|\\[^])*/y;
    chars.lastIndex = this.at;
    const [whole] = chars.exec(this.text)!;
    this.at += whole.length;
    if (this.text[this.at] === '"') {
      this.at += 1;
      return JSON.parse(`${whole}"`) as string;
    }
    this.at = this.text.length;
    if (!open) throw new Cut();
    // Without a half-written escape, and without half a character of two code units.
    const [complete] = /^"(?:[^\\]+|\\[^u]|\\u[\da-f]{4})*/i.exec(whole)!;
    return (JSON.parse(`${complete}"`) as string).replace(/[\ud800-\udbff]$/, "");
  }

  private scalar(): unknown {
    const found = /[-+.\w]*/y;
    found.lastIndex = this.at;
    const word = found.exec(this.text)![0];
    this.at += word.length;
    const ends = this.at === this.text.length;
    for (const [literal, value] of LITERALS) {
      if (word === literal) return value;
      if (ends && literal.startsWith(word)) throw new Cut();
    }
    // The next digit may follow.
    if (ends && /^-?\d*\.?\d*(?:e[-+]?\d*)?$/i.test(word)) throw new Cut();
    return JSON.parse(word);
  }

  /** Read, and keep what was read if the text ends. */
  private untilCut(read: () => void): void {
    try {
      read();
    } catch (error) {
      if (!(error instanceof Cut)) throw error;
      this.at = this.text.length;
    }
  }

  private expect(char: string): void {
    if (this.peek() !== char) throw new SyntaxError(this.rest());
    this.at += 1;
  }

  /** The next character that is no white space. Throws `Cut` at the end. */
  private peek(): string {
    while (/\s/.test(this.text[this.at] ?? "")) this.at += 1;
    const char = this.text[this.at];
    if (char === undefined) throw new Cut();
    return char;
  }

  private rest(): string {
    return `unexpected ${JSON.stringify(this.text.slice(this.at, this.at + 20))}`;
  }
}
