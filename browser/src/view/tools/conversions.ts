/** Converts arguments of WebMCP's operations as WebIDL defines; the messages are those of Chromium. */

export type Fail = (why: string) => never;
export type Convert<Value> = (value: unknown, fail: Fail) => Value;

/** Reads one member of a dictionary; undefined if it is absent and not required. */
export interface Members {
  <Value>(name: string, convert: Convert<Value>): Value | undefined;
  <Value>(name: string, convert: Convert<Value>, required: true): Value;
}

/** Returns a function that throws the errors of one operation. */
export const createFail = (operation: string): Fail => (why) => {
  throw new TypeError(`Failed to execute '${operation}' on 'ModelContext': ${why}`);
};

const quote = (name: string): string => `'${name}'`;
/** The message for an invalid member `name` of a dictionary. */
const memberMessage = (name: string, type: string, why: string): string => `Failed to read the ${quote(name)} property from ${quote(type)}: ${why}`;

export const isObjectLike = (value: unknown): value is object => typeof value === "function" || (typeof value === "object" && value !== null);

/** The dictionary `type` in `given` (WebIDL, 3.2.17); its members must be read in the order of their names. */
export function dictionary(given: unknown, type: string, fail: Fail, nullable = true): Members {
  if (!isObjectLike(given) && !(nullable && (given === undefined || given === null))) fail(`The provided value is not of type '${type}'.`);
  return <Value>(name: string, convert: Convert<Value>, required?: boolean): Value => {
    const value: unknown = isObjectLike(given) ? Reflect.get(given, name) : undefined;
    const failHere: Fail = (why) => fail(memberMessage(name, type, why));
    if (value === undefined && required) failHere("Required member is undefined.");
    return value === undefined ? (value as Value) : convert(value, failHere);
  };
}

export const toDomString: Convert<string> = (value, fail) => {
  if (typeof value === "symbol") fail("Cannot convert a Symbol value to a string");
  return String(value);
};

/** `text` with U+FFFD in place of each lone surrogate, which no message can carry. */
export const wellFormed = (text: string): string => text.replace(/\p{Surrogate}/gu, "\ufffd");

export const toUsvString: Convert<string> = (value, fail) => wellFormed(toDomString(value, fail));

export const toObject: Convert<object> = (value, fail) => (isObjectLike(value) ? value : fail("Failed to convert value to 'object'."));

export const toCallback: Convert<(...given: unknown[]) => unknown> = (value, fail) =>
  typeof value === "function" ? (value as (...given: unknown[]) => unknown) : fail("The given value is not a function.");

export const toStrings: Convert<string[]> = (value, fail) => {
  if (!isObjectLike(value)) return fail("The provided value cannot be converted to a sequence.");
  const given = value as Iterable<unknown>;
  const iterator: unknown = given[Symbol.iterator];
  if (iterator === undefined || iterator === null) fail("The object must have a callable @@iterator property.");
  if (typeof iterator !== "function") return fail("@@iterator must be a callable.");
  const found: string[] = [];
  const steps: unknown = iterator.call(given);
  if (!isObjectLike(steps)) return fail("Iterator object must be an object.");
  const { next } = steps as Iterator<unknown>;
  for (;;) {
    const step: unknown = next.call(steps);
    if (!isObjectLike(step)) return fail("Expected iterator.next() to return an Object.");
    const { done, value: one } = step as IteratorResult<unknown>;
    if (done) return found;
    found.push(toUsvString(one, fail));
  }
};

/** A platform object, checked by that getter, which throws for any other object (also one of another realm). */
function platformObject<Value>(type: string, getter: ((this: never) => unknown) | undefined): Convert<Value> {
  return (value, fail) => {
    try {
      getter?.call(toObject(value, fail) as never);
    } catch {
      fail(`Failed to convert value to '${type}'.`);
    }
    return value as Value;
  };
}

const getterOf = (owner: object, name: string): ((this: never) => unknown) | undefined => Object.getOwnPropertyDescriptor(owner, name)?.get;

export const toAbortSignal = platformObject<AbortSignal>("AbortSignal", getterOf(AbortSignal.prototype, "aborted"));
export const toWindow = platformObject<unknown>("Window", getterOf(globalThis, "window"));

const toBoolean: Convert<boolean> = Boolean;
const HINTS = ["consequentialHint", "debugging", "readOnlyHint", "untrustedContentHint"];

/** The hints that WebMCP defines. */
export const toAnnotations: Convert<{ [hint: string]: boolean }> = (value, fail) => {
  const hint = dictionary(value, "ToolAnnotations", fail);
  return Object.fromEntries(HINTS.map((name) => [name, hint(name, toBoolean) ?? false]));
};

/** `value` as JSON text. Fails without one; JSON's own errors keep their message. */
export function toJson(value: object, what: string, fail: Fail): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    // Errors of the page's own getters pass unchanged.
    if (!(error instanceof TypeError)) throw error;
    fail(error.message);
  }
  return text ?? fail(`${what}: toJSON() returns undefined`);
}

// Captured now: in a view the page's `URL` is replaced.
const { URL } = globalThis;
const LOCAL = /^(localhost|.*\.localhost|127\..*|\[::1\])$/;

/** Throws a SecurityError unless each is potentially trustworthy (Secure Contexts, 3.1). */
export function demandSecure(origins: string[], list: string): void {
  for (const given of origins) {
    const url = URL.canParse(given) ? new URL(given) : undefined;
    const { protocol, hostname } = url?.protocol === "blob:" && URL.canParse(url.pathname) ? new URL(url.pathname) : (url ?? { protocol: "", hostname: "" });
    if (/^(https|wss|file|chrome|chrome-extension):$/.test(protocol) || (/^(http|ws):$/.test(protocol) && LOCAL.test(hostname))) continue;
    throw new DOMException(`Only secure origins are allowed in the ${list} list.`, "SecurityError");
  }
}

/** The origin in a tool from `getTools`. Throws a NotSupportedError if it cannot be a document's. */
export function originOf(given: string, own: string): string {
  if (given === own) return own;
  if (!URL.canParse(given)) throw new DOMException("The provided origin is invalid.", "NotSupportedError");
  const { origin } = new URL(given);
  if (origin === "null") throw new DOMException("Cannot execute tools that live in a document with an opaque origin.", "NotSupportedError");
  return origin;
}
