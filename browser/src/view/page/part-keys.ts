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
