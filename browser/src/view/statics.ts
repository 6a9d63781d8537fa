/** What makes a URL or a sound, awaits a picture, or asks for a permission, without an element or a constructor that the runtime has in its hands. */

import { attempt } from "./attempt";

/** `URL.parse` and `URL.canParse` of `made`, which knows more URLs than the browser's own. */
export function withParse(made: typeof URL): void {
  const { parse, canParse } = made;
  // Older browsers have neither.
  if (!parse) return;
  const known = (given: [string]): URL | null => parse.apply(made, given) ?? attempt(() => new made(...given)) ?? null;
  made.parse = new Proxy(parse, { apply: (_, __, given: [string]) => known(given) });
  made.canParse = new Proxy(canParse, { apply: (_, __, given: [string]) => !!known(given) });
}

/** `Audio` that hands its URL to the property, where the runtime sees it. */
export function soundsOf(native: typeof Audio): typeof Audio {
  return new Proxy(native, {
    construct(_, given: [string?], made: Function) {
      const sound = Reflect.construct(native, [], made) as HTMLAudioElement;
      if (given.length) sound.src = given[0]!;
      return sound;
    },
  });
}

/** `decode` of pictures, once the one that the page named is there, or is known not to be. */
export function awaitPictures(): void {
  const { decode } = Image.prototype;
  Image.prototype.decode = async function () {
    if (!this.complete) await new Promise((go) => ["load", "error"].forEach((type) => this.addEventListener(type, go, { once: true })));
    return decode.call(this);
  };
}

interface Policy {
  allowsFeature(feature: string, ...rest: unknown[]): boolean;
}

/** Tools of a page are the runtime's, wherever the browser would have its own: libraries ask before they register one. */
export function allowTools(): void {
  const { permissionsPolicy, featurePolicy } = document as { permissionsPolicy?: Policy; featurePolicy?: Policy };
  for (const policy of [permissionsPolicy, featurePolicy]) {
    if (!policy) continue;
    const { allowsFeature } = policy;
    policy.allowsFeature = (feature, ...rest) => feature === "tools" || allowsFeature.call(policy, feature, ...rest);
  }
}
