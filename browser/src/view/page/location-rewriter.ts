/** Rewrites scripts that are added at run time, which the packer has not seen, to use the app's own `location`. */

import { IMPORT, OWN, type Importing } from "./part-keys";

/** Text in these is not rewritten. */
const STRING = /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/;
const COMMENT = /(?<=^|[\s;{}(),])(?:\/\*[^]*?\*\/|\/\/.*)/;
const REGEX = /\/(?<=(?:[=(,:;!&|?[{+~>]|\breturn)\s*\/)(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\//;
const MEMBER = String.raw`\s*\??\.\s*(?:href|origin|protocol|host|hostname|port|pathname|search|hash|assign|replace|reload|toString)\b`;
const READ = new RegExp(
  String.raw`\b(?=[dglpsw])(?<![$#]|\.\s*|\bnew\s+)(?<read>(?:window|self|globalThis|document)(?=\s*\??\.\s*location\b)|location(?=${MEMBER})|(?:window|self|globalThis)(?=\s*\??\.\s*postMessage\b)|postMessage(?=\s*\([^()]*(?:\([^()]*\)[^()]*)*\b(?:location|targetOrigin|origin)\b))`,
);
/** The `location` of an object that an expression gives, such as `getDocument().location.href`. */
const OF_RESULT = new RegExp(String.raw`(?<=[)\]]\s*\??\.\s*)(?<of>location)(?=${MEMBER})`);
/** A navigation by assignment; anywhere else it might be a pattern. */
const ASSIGNED = /(?<=^|[;}]\s*|\)\s*)(?<set>location)(?=\s*=(?![=>]))/;
/** Code with a variable of that name. */
const DECLARED = /\b(?:var|let|const)\s[^;]*?\blocation\s*[=,;]|[(,]\s*location\s*[,)=]/;
const TOKENS = new RegExp([STRING, COMMENT, REGEX, READ, OF_RESULT, ASSIGNED].map(({ source }) => source).join("|"), "g");

/** The member of each `Location` that is the app's own, and of any other object that object. */
export const AT = "webmcpGatewayAt";

/** By patterns, which miss some reads; pages without the part for modules have no parser. */
export function rewriteLocation(code: string): string {
  if (!/location|postMessage/.test(code)) return code;
  const declared = DECLARED.test(code);
  return code.replace(TOKENS, (found, ...rest) => {
    const { read, of, set } = rest.at(-1) as { [group: string]: string | undefined };
    return read ? `${OWN}(${read})` : of ? `${of}.${AT}` : set && !declared ? `${OWN}(window).${set}` : found;
  });
}

/** By the parser, where there is one. */
const rewriteScript = (code: string): string => (window as { [IMPORT]?: Importing })[IMPORT]?.ownReads(code) ?? rewriteLocation(code);

/** Rewrites the text of script elements when it is set. */
export function rewriteLaterScripts(): void {
  const { prototype } = HTMLScriptElement;
  const own = (location: unknown): unknown => (window as unknown as { [OWN]: (value: unknown) => unknown })[OWN](location);
  for (const owner of [Object.prototype, Location.prototype]) {
    Object.defineProperty(owner, AT, { configurable: true, get(this: unknown) { return own(this); } });
  }
  for (const [name, owner] of [["text", prototype], ["textContent", Node.prototype]] as const) {
    const { set, ...native } = Object.getOwnPropertyDescriptor(owner, name)!;
    Object.defineProperty(prototype, name, {
      ...native,
      set(this: HTMLScriptElement, value: unknown) {
        set!.call(this, typeof value === "string" && /^$|module|script$/i.test(this.type) ? rewriteScript(value) : value);
      },
    });
  }
}
