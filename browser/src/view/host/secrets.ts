/** Keeps passwords, and the bodies of secret routes, out of reports to the model. */

import { isObject, type Params } from "./json-rpc";
import { readSnapshot } from "./tiers";

/** Values of password fields that are remembered: pages clear a field before its request fails. */
const MOST = 32;
/** Characters from which a password is also found within a longer text. */
const WITHIN = 4;

/** A secret route: its methods, null for all, and its path as a regular expression. */
type SecretRoute = [methods: string[] | null, path: string];

/** All strings of a value; those of a form or a JSON text, too. */
function* texts(value: unknown): Iterable<string> {
  if (typeof value === "string") {
    yield value;
    for (const [, part] of new URLSearchParams(value)) yield part;
    try {
      const inner: unknown = JSON.parse(value);
      if (typeof inner !== "string") yield* texts(inner);
    } catch {
      // It is not JSON.
    }
  } else if (Array.isArray(value) || isObject(value)) {
    for (const one of Object.values(value as object)) yield* texts(one);
  }
}

/** Whether a report contains a password, or is of a secret route. */
export function isSecret(entry: Params, passwords: Iterable<string>, routes: readonly SecretRoute[]): boolean {
  const method = String(entry["method"] ?? "");
  const path = entry["path"] === undefined ? "" : new URL(String(entry["path"]), "https://app.invalid").pathname;
  if (path && routes.some(([methods, pattern]) => (!methods || methods.includes(method)) && new RegExp(`^${pattern}$`).test(path))) return true;
  const said = [...texts(entry)];
  return [...passwords].some((password) => said.some((text) => text === password || (password.length >= WITHIN && text.includes(password))));
}

/** The runtime asks for each report whether it is secret. */
export function tellSecrets(): void {
  const fields = new Set<HTMLInputElement>();
  const typed = new Set<string>();
  const remember = ({ value }: HTMLInputElement): void => {
    if (!value) return;
    typed.delete(value);
    typed.add(value);
    if (typed.size > MOST) typed.delete(typed.values().next().value!);
  };
  // Also in shadow roots, and after a page shows the password as text.
  const see = (event: Event): void => {
    const [field] = event.composedPath();
    if (!(field instanceof HTMLInputElement)) return;
    if (field.type === "password") fields.add(field);
    if (fields.has(field)) remember(field);
  };
  for (const type of ["input", "change", "focusin"]) addEventListener(type, see, true);
  const routes = readSnapshot()["secret"];
  Object.assign(globalThis, {
    webmcpGatewaySecret(entry: Params): boolean {
      // Fields that a script or the browser filled.
      for (const field of document.querySelectorAll<HTMLInputElement>("input[type=password]")) fields.add(field);
      for (const field of fields) {
        remember(field);
        if (!field.isConnected) fields.delete(field);
      }
      return isSecret(entry, typed, Array.isArray(routes) ? (routes as SecretRoute[]) : []);
    },
  });
}
