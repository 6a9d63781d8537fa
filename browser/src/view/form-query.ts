/** The entries of a form as a query (HTML, 4.10.21.3). */

/** With CRLF for each line break, as a form is sent. */
export const normalizeLines = (text: string): string => text.replace(/\r\n?|\n/g, "\r\n");

/** The query of `entries`: of a file, its name. */
export function formQuery(entries: Iterable<[string, FormDataEntryValue]>): string {
  return String(new URLSearchParams([...entries].map(([name, value]) => [normalizeLines(name), normalizeLines(typeof value === "string" ? value : value.name)])));
}
