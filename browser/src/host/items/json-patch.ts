/** JSON Patch (RFC 6902), in which AG-UI sends the changes of an activity. */
import { isRecord } from "./item";

/** `document` with `patch` applied; the given one stays as it is. Throws `TypeError` if the patch does not fit it. */
export function applyPatch(document: unknown, patch: readonly unknown[]): unknown {
  // A wrapper gives the whole document a parent: the pointer "" names it.
  const root = { document: structuredClone(document) };
  for (const operation of patch) {
    if (!isRecord(operation)) throw new TypeError("an operation of the patch is no object");
    applyOperation(root, operation);
  }
  return root.document;
}

function applyOperation(root: object, { op, path, from, value }: Record<string, unknown>): void {
  switch (op) {
    case "add":
      return add(root, path, structuredClone(value));
    case "remove":
      return void remove(root, path);
    case "replace":
      remove(root, path);
      return add(root, path, structuredClone(value));
    case "move":
      return add(root, path, remove(root, from));
    case "copy":
      return add(root, path, structuredClone(read(root, from)));
    case "test":
      if (canonical(read(root, path)) !== canonical(value)) throw misfit(path, "has another value");
      return;
    default:
      throw new TypeError(`the patch has the unknown operation ${JSON.stringify(op)}`);
  }
}

function add(root: object, path: unknown, value: unknown): void {
  const [parent, key] = locate(root, path);
  if (!Array.isArray(parent)) {
    Object.defineProperty(parent, key, { value, writable: true, enumerable: true, configurable: true });
    return;
  }
  const index = key === "-" ? parent.length : indexOf(parent, key, path, parent.length);
  parent.splice(index, 0, value);
}

function remove(root: object, path: unknown): unknown {
  const [parent, key] = locate(root, path);
  const old = read(root, path);
  if (Array.isArray(parent)) parent.splice(Number(key), 1);
  else delete (parent as Record<string, unknown>)[key];
  return old;
}

function read(root: object, path: unknown): unknown {
  const [parent, key] = locate(root, path);
  return step(parent, key, path);
}

/** The object or array that holds the member at `path`, and its key. */
function locate(root: object, path: unknown): [object, string] {
  if (typeof path !== "string" || (path && !path.startsWith("/"))) throw misfit(path, "is no JSON pointer");
  const keys = ["document", ...path.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"))];
  const last = keys.pop()!;
  let parent: unknown = root;
  for (const key of keys) parent = step(parent, key, path);
  if (typeof parent !== "object" || parent === null) throw misfit(path, "is within a value that has no members");
  return [parent, last];
}

function step(parent: unknown, key: string, path: unknown): unknown {
  if (Array.isArray(parent)) return parent[indexOf(parent, key, path, parent.length - 1)];
  if (typeof parent !== "object" || parent === null || !Object.hasOwn(parent, key)) throw misfit(path, "does not exist");
  return (parent as Record<string, unknown>)[key];
}

function indexOf(array: unknown[], key: string, path: unknown, last: number): number {
  if (!/^(0|[1-9]\d*)$/.test(key) || Number(key) > last) throw misfit(path, `is no index of an array of ${array.length}`);
  return Number(key);
}

/** A text that is equal for equal values, whatever the order of their members. */
function canonical(value: unknown): string {
  const sorted = (_: string, one: unknown): unknown =>
    isRecord(one) ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1))) : one;
  return JSON.stringify(value, sorted) ?? "undefined";
}

function misfit(path: unknown, why: string): TypeError {
  return new TypeError(`the patch does not fit: ${JSON.stringify(path)} ${why}`);
}
