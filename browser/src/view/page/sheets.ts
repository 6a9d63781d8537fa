/** Files of the backend in rules that scripts write: into a sheet, or into the style of a rule. */

import type { Files } from "./page-files";

type Rule = { style?: CSSStyleDeclaration; cssRules?: Rule[] };

const SHEETS = ["CSSStyleSheet", "CSSGroupingRule", "CSSStyleRule", "CSSKeyframesRule"];
const STYLE_RULES = ["CSSStyleRule", "CSSFontFaceRule", "CSSKeyframeRule", "CSSNestedDeclarations"];

/** Replaces the browser's `name` by the result of `make`, in those of `classes` that have it. */
function replace(classes: string[], name: string, make: (native: PropertyDescriptor) => PropertyDescriptor): void {
  for (const one of classes) {
    const { prototype = {} } = (window as unknown as { [name: string]: { prototype?: object } })[one] ?? {};
    const native = Object.getOwnPropertyDescriptor(prototype, name);
    if (native) Object.defineProperty(prototype, name, { ...native, ...make(native) });
  }
}

export function watchSheets({ embedFiles }: Pick<Files, "embedFiles">): void {
  async function embedInto(style: CSSStyleDeclaration): Promise<void> {
    const { cssText } = style;
    const filled = await embedFiles(cssText);
    if (filled !== undefined && style.cssText === cssText) style.cssText = filled;
  }

  function readStyles(rules: Iterable<Rule>): void {
    for (const rule of rules) {
      void rule.style; // reading it is enough, see below
      if (rule.cssRules) readStyles(rule.cssRules);
    }
  }

  for (const name of ["addRule", "appendRule", "insertRule", "replace", "replaceSync"]) {
    replace(SHEETS, name, (native) => ({
      value(this: { cssRules: Rule[] }, ...given: unknown[]) {
        const result: unknown = native.value.apply(this, given);
        if (result instanceof Promise) result.then(() => readStyles(this.cssRules), () => undefined);
        else readStyles(name === "insertRule" ? [this.cssRules[result as number] as Rule] : this.cssRules);
        return result;
      },
    }));
  }
  // Properties of a style are no accessors: a read of a rule's style may precede a write.
  replace(STYLE_RULES, "style", ({ get }) => ({
    get(this: Rule) {
      const style = get!.call(this) as CSSStyleDeclaration;
      queueMicrotask(() => void embedInto(style));
      return style;
    },
  }));
}
