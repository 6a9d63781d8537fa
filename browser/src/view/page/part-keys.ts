/** The packer replaces each `location` in a page's scripts by a call of a function that a part of the runtime defines. */

/**
 * It returns the app's own for the window's `Location`, an object with that `location` for window and document, and any
 * other value unchanged. Variables of the page with that name therefore work as before.
 */
export const OWN = "webmcpGatewayOwn";

/** The id of the element with the app's other pages, by their paths; the packed page itself has an empty entry. */
export const PAGES = "webmcp-gateway-pages";
/** The window's property with the databases of IndexedDB in memory, until the part that saves them takes it. */
export const DATABASES = "webmcpGatewayDatabases";

/** Saves and restores all databases, for the part that keeps them on the gateway. */
export interface Databases {
  /** `changed` receives the text of each database that has changed, null once it is deleted, and the reason why it cannot be saved. */
  watch(changed: (name: string, text: string | null) => void, failed: (name: string, why: unknown) => void): void;
  restore(name: string, text: string): Promise<void>;
}

/** The window's property by which modules are imported that are not linked in the page; code names it to get its part. */
export const IMPORT = "webmcpGatewayImport";
/** The window's property with the modules that the packer has linked. */
export const PACKED = "webmcpGatewayPacked";

/** Modules in a page, for the parts that start its scripts; called with the URL of a script, it is the script's `import`. */
export interface Importing {
  (base: string): (specifier: unknown, options?: unknown) => Promise<unknown>;
  /** Adds the import maps of the page. */
  readMaps(): void;
  /**
   * Prepares a module script, and resolves to the function that runs it. Rejects if a file is missing, or with a
   * SyntaxError of its own code.
   */
  prepare(url: string, code: string | undefined, integrity: string): Promise<() => void>;
  /** The text of a classic script at `base`, whose `import()` works. */
  classic(code: string, base: string): string;
  /** A script with each read of `location` wrapped in a call of the function `OWN`; null if no parser can read it. */
  ownReads(code: string): string | null;
}
