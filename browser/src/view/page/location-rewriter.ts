/** Rewrites scripts that are added at run time, which the packer has not seen, to use the app's own `location`. */

import { OWN } from "./part-keys";

/** Text in these is not rewritten. */
const STRING = /"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/;
const COMMENT = /(?<=^|[\s;{}(),])(?:\/\*[^]*?\*\/|\/\/.*)/;
const REGEX = /\/(?<=(?:[=(,:;!&|?[{+~>]|\breturn)\s*\/)(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\//;
const READ = new RegExp(
  String.raw`\b(?=[dglsw])(?<![$#]|\.\s*|\bnew\s+)(?<read>(?:window|self|globalThis|document)(?=\s*\??\.\s*location\b)|location(?=\s*\??\.\s*`
  + String.raw`(?:href|origin|protocol|host|hostname|port|pathname|search|hash|assign|replace|reload|toString)\b))`,
);
const TOKENS = new RegExp([STRING, COMMENT, REGEX, READ].map(({ source }) => source).join("|"), "g");

function rewriteLocation(code: string): string {
  return code.includes("location") ? code.replace(TOKENS, (found, read?: string) => (read ? `${OWN}(${read})` : found)) : code;
}

/** Rewrites the text of script elements when it is set. */
export function rewriteLaterScripts(): void {
  const { prototype } = HTMLScriptElement;
  for (const [name, owner] of [["text", prototype], ["textContent", Node.prototype]] as const) {
    const { set, ...native } = Object.getOwnPropertyDescriptor(owner, name)!;
    Object.defineProperty(prototype, name, {
      ...native,
      set(this: HTMLScriptElement, value: unknown) {
        set!.call(this, typeof value === "string" && /^$|module|script$/i.test(this.type) ? rewriteLocation(value) : value);
      },
    });
  }
}
