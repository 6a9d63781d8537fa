/** Creates URLs and sounds, decodes images, and queries permissions, where no element or constructor of the runtime is involved. */

import { attempt } from "../attempt";

/** `URL.parse` and `URL.canParse` of `made`, which accepts more URLs than the browser's own. */
export function withParse(made: typeof URL): void {
  const { parse, canParse } = made;
  // Older browsers have neither.
  if (!parse) return;
  const parseUrl = (given: [string]): URL | null => parse.apply(made, given) ?? attempt(() => new made(...given)) ?? null;
  made.parse = new Proxy(parse, { apply: (_, __, given: [string]) => parseUrl(given) });
  made.canParse = new Proxy(canParse, { apply: (_, __, given: [string]) => !!parseUrl(given) });
}

/** `Audio` that sets its URL by the property, which the runtime handles. */
export function withSoundUrls(native: typeof Audio): typeof Audio {
  return new Proxy(native, {
    construct(_, given: [string?], made: Function) {
      const sound = Reflect.construct(native, [], made) as HTMLAudioElement;
      if (given.length) sound.src = given[0]!;
      return sound;
    },
  });
}

/** `decode` of images, once the page's file is loaded, or has failed. */
export function awaitDecodedImages(): void {
  const { decode } = Image.prototype;
  Image.prototype.decode = async function () {
    if (!this.complete) await new Promise((go) => ["load", "error"].forEach((type) => this.addEventListener(type, go, { once: true })));
    return decode.call(this);
  };
}

interface Policy {
  allowsFeature(feature: string, ...rest: unknown[]): boolean;
}

/** The page's tools are the runtime's, even where the browser forbids its own: libraries test before they register one. */
export function allowTools(): void {
  const { permissionsPolicy, featurePolicy } = document as { permissionsPolicy?: Policy; featurePolicy?: Policy };
  for (const policy of [permissionsPolicy, featurePolicy]) {
    if (!policy) continue;
    const { allowsFeature } = policy;
    policy.allowsFeature = (feature, ...rest) => feature === "tools" || allowsFeature.call(policy, feature, ...rest);
  }
}
