/** What the packer makes of each `location` in a page's scripts is a call of a function that a part of the runtime defines. */

/**
 * It gives the app's own for the window's `Location`, for the window and the document something whose `location` is that,
 * and anything else as it is. So it matters not what is a variable of the page's.
 */
export const OWN = "webmcpGatewayOwn";

/** The id of the element with the app's other pages, by their paths; what the packed page itself is has nothing there. */
export const PAGES = "webmcp-gateway-pages";
