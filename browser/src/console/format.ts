/** Numbers and times in words; times of the gateway are in seconds since the epoch. */

export function duration(milliseconds: number): string {
  if (milliseconds < 1) return "<1 ms";
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 1 : 0)} s`;
  return `${Math.floor(milliseconds / 60_000)} min ${Math.round((milliseconds % 60_000) / 1000)} s`;
}

/** Time left as m:ss, from an hour on as h:mm:ss; never negative. */
export function countdown(seconds: number): string {
  const left = Math.max(0, Math.ceil(seconds));
  const minutes = Math.floor(left / 60);
  const parts = minutes < 60 ? [minutes, left % 60] : [Math.floor(minutes / 60), minutes % 60, left % 60];
  return parts.map((part, place) => String(part).padStart(place && 2, "0")).join(":");
}

/** A time in words, to the minute if it is longer than one. */
export function span(seconds: number): string {
  if (seconds < 60) return count(Math.round(seconds), "second", "seconds");
  const minutes = Math.round(seconds / 60);
  return minutes % 60 === 0 ? count(minutes / 60, "hour", "hours") : count(minutes, "minute", "minutes");
}

export function size(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KiB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** The size of a body, to the byte if that is easily read. */
export function bodySize(bytes: number): string {
  return bytes < 1024 ? count(bytes, "byte", "bytes") : size(bytes);
}

// Created once: that takes longer than formatting a hundred times.
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hour12: false });
const DATE_TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium", hour12: false });

export function clock(seconds: number): string {
  return CLOCK.format(seconds * 1000);
}

export function dateTime(seconds: number): string {
  return DATE_TIME.format(seconds * 1000);
}

/** `one` for 1, else `many`, after the number. */
export function count(number: number, one: string, many: string): string {
  return `${number} ${number === 1 ? one : many}`;
}

const HIDDEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** Text with nothing hidden: control, invisible and direction-changing characters are replaced by their code. */
export function visible(source: string): string {
  return source.replace(HIDDEN, (char) => (char === "\n" || char === "\t" ? char : code(char)));
}

/** The same for text that must stay on one line. */
export function visibleLine(source: string): string {
  return source.replace(HIDDEN, code);
}

function code(char: string): string {
  return `⟨U+${(char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}
