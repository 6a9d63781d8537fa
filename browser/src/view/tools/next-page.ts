/** The page to which a declarative tool leads, for a model: its title, and its JSON-LD or main text. */

import { attempt } from "../attempt";

/** Characters of the text. */
const MAX_TEXT = 8000;

export interface NextPage {
  title: string;
  /** JSON-LD, which a page writes for programs. */
  data?: unknown;
  /** The main text of a page without JSON-LD. */
  text?: string;
}

const UNREAD = "script,style,template,noscript,svg";
const AROUND = "nav,header,footer,aside";
const BLOCKS = "address,article,blockquote,br,dd,div,dt,fieldset,figcaption,h1,h2,h3,h4,h5,h6,hr,li,main,option,p,pre,section,table,td,th,tr,ul";

function mainText(page: Document): string {
  const main = page.querySelector("main,[role=main],article");
  const read = main ?? page.body;
  for (const element of read.querySelectorAll(main ? UNREAD : `${UNREAD},${AROUND}`)) element.remove();
  for (const block of read.querySelectorAll(BLOCKS)) block.append("\n");
  const text = (read.textContent ?? "").replace(/[^\S\n]+/g, " ").replace(/ ?\n\s*/g, "\n").trim();
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
}

export function describePage(html: string): NextPage {
  const page = new DOMParser().parseFromString(html, "text/html");
  const written = [...page.querySelectorAll('script[type="application/ld+json" i]')].map(({ textContent }) => attempt(() => JSON.parse(textContent ?? "") as unknown));
  const data = written.filter((one) => one !== undefined && one !== null);
  const said = data.length ? { data: data.length > 1 ? data : data[0] } : { text: mainText(page) };
  return { title: page.title, ...said };
}
