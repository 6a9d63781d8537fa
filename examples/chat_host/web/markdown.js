/**
 * The Markdown that models write, as elements: headings, lists, tables, code, quotes, emphasis and links.
 *
 * There is no HTML on the way, so text cannot become markup; links lead only to web addresses, and images are links.
 */
import { make } from "./dom.js";

const LONGEST_INLINE = 20_000;
const DEEPEST = 6;

/** The elements of a text; an unfinished one is drawn as far as it goes. */
export function renderMarkdown(text) {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0, { top: null });
}

/** `headings.top` is the level of the largest heading so far: in the page it is a second one. */
function blocks(lines, depth, headings) {
  const made = [];
  let at = 0;
  const take = (test) => {
    const taken = [];
    while (at < lines.length && test(lines[at])) taken.push(lines[at++]);
    return taken;
  };
  while (at < lines.length) {
    const line = lines[at];
    const fence = /^\s*(```+|~~~+)\s*([\w+-]*)/.exec(line);
    const heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line);
    if (!line.trim()) at += 1;
    else if (fence) {
      at += 1;
      const code = take((one) => !one.trim().startsWith(fence[1]));
      at += 1; // the closing fence, if the model has written it
      made.push(make("pre", {}, make("code", {}, code.join("\n"))));
    } else if (heading) {
      at += 1;
      headings.top ??= heading[1].length;
      made.push(make(heading[1].length <= headings.top ? "h2" : "h3", {}, ...inline(heading[2])));
    } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
      at += 1;
      made.push(make("hr"));
    } else if (/^\s*>/.test(line) && depth < DEEPEST) {
      const quoted = take((one) => /^\s*>/.test(one)).map((one) => one.replace(/^\s*> ?/, ""));
      made.push(make("blockquote", {}, ...blocks(quoted, depth + 1, headings)));
    } else if (listItem(line) && depth < DEEPEST) {
      made.push(list(take((one) => listItem(one) || /^\s{2,}\S/.test(one)), depth, headings));
    } else if (isTable(lines, at)) {
      made.push(table(take((one) => one.includes("|"))));
    } else {
      const first = [lines[at++]];
      made.push(make("p", {}, ...inline([...first, ...take((one) => isText(one, depth))].join("\n"))));
    }
  }
  return made;
}

const listItem = (line) => /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/.exec(line);
const isText = (line, depth) => line.trim() !== "" && !/^\s*(```|~~~|#{1,6}\s)/.test(line) && !(depth < DEEPEST && (listItem(line) || /^\s*>/.test(line)));

/** Items of one list; what is indented further belongs to the item above it. */
function list(lines, depth, headings) {
  const [, indent, mark] = listItem(lines[0]) ?? [null, "", "-"];
  const items = [];
  for (const line of lines) {
    const item = listItem(line);
    if (item && item[1].length <= indent.length + 1) items.push([item[3]]);
    else items.at(-1)?.push(line.replace(/^\s{1,4}/, ""));
  }
  const ordered = /\d/.test(mark);
  const drawn = items.map(([first, ...more]) => make("li", {}, ...inline(first), ...blocks(more, depth + 1, headings)));
  return make(ordered ? "ol" : "ul", ordered && parseInt(mark, 10) > 1 ? { start: String(parseInt(mark, 10)) } : {}, ...drawn);
}

const isTable = (lines, at) => lines[at].includes("|") && /^\s*\|?[\s:|-]*-[\s:|-]*$/.test(lines[at + 1] ?? "") && lines[at + 1].includes("|");
const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

function table([head, , ...rows]) {
  const names = cells(head);
  const drawn = make(
    "table",
    {},
    make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, ...inline(name))))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...names.map((_, column) => make("td", {}, ...inline(cells(row)[column] ?? "")))))),
  );
  return make("div", { class: "table" }, drawn);
}

const MARKS = [
  { pattern: /`([^`\n]+)`/, draw: ([, code]) => make("code", {}, code) },
  { pattern: /!?\[([^\]\n]*)\]\(\s*<?([^\s)>]+)>?[^)\n]*\)/, draw: ([whole, words, address]) => link(address, words || address) ?? whole },
  { pattern: /\bhttps?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?]/, draw: ([address]) => link(address, address) ?? address },
  { pattern: /\*\*(?=\S)([^\n]*?\S)\*\*/, draw: ([, words]) => make("strong", {}, ...inline(words)) },
  { pattern: /~~(?=\S)([^\n]*?\S)~~/, draw: ([, words]) => make("s", {}, ...inline(words)) },
  { pattern: /(?<![\w*])\*(?=[^\s*])([^*\n]*?[^\s*])\*(?![\w*])/, draw: ([, words]) => make("em", {}, ...inline(words)) },
  { pattern: /(?<![\w_])_(?=[^\s_])([^_\n]*?[^\s_])_(?![\w_])/, draw: ([, words]) => make("em", {}, ...inline(words)) },
];

/** Text with emphasis, code and links; the mark that begins first counts. */
function inline(text) {
  if (text.length > LONGEST_INLINE) return [text];
  const made = [];
  let rest = text;
  while (rest) {
    let first = null;
    for (const { pattern, draw } of MARKS) {
      const found = pattern.exec(rest);
      if (found && (first === null || found.index < first.found.index)) first = { found, draw };
    }
    if (!first) break;
    const { found, draw } = first;
    made.push(...plain(rest.slice(0, found.index)), draw(found));
    rest = rest.slice(found.index + found[0].length);
  }
  return [...made, ...plain(rest)];
}

/** Text, whose line breaks stay; a backslash before a mark is left out. */
function plain(text) {
  return text
    .replace(/\\([\\`*_~[\]()#>|-])/g, "$1")
    .split("\n")
    .flatMap((line, place) => (place ? [make("br"), line] : line ? [line] : []));
}

/** A link to the web; null for every other address, such as `javascript:`. */
function link(address, words) {
  const url = URL.parse(address);
  if (!url || !["http:", "https:", "mailto:"].includes(url.protocol)) return null;
  return make("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow", title: url.href }, words);
}
