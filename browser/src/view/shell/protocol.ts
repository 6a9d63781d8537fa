/** The messages between a page of the backend and the shell that shows it, beside those of MCP Apps. */

/** The beginning of their methods. */
export const OWN_METHODS = "webmcp-gateway/";

/** A page leads to another one. */
export const NAVIGATE = `${OWN_METHODS}navigate`;
/** A page changed its URL without another page, by the history or by a fragment. */
export const MOVED = `${OWN_METHODS}moved`;
/** A page goes through the history. */
export const TRAVERSE = `${OWN_METHODS}traverse`;
/** A page sets a cookie. */
export const SET_COOKIE = `${OWN_METHODS}cookie`;
/** The shell tells a page its cookies. */
export const COOKIES = `${OWN_METHODS}cookies`;
/** The shell is about to remove a page, */
export const LEAVE = `${OWN_METHODS}leave`;
/** which tells what it stored. */
export const STORED = `${OWN_METHODS}stored`;

/** A page at `at` has a frame that shows another one, or shows none any more, if it is `gone`; `above` are the pages around that. */
export const FRAME = `${OWN_METHODS}frame`;
/** A message of a frame in the page, or for it. */
export const FRAMED = `${OWN_METHODS}framed`;
/** The page of a frame, which takes the place of its former one. */
export const FRAME_PAGE = `${OWN_METHODS}frame-page`;

/** The header in which the shell describes the page that makes a request. */
export const PAGE_HEADER = "webmcp-gateway-page";
/** The header with the cookies that scripts may read. */
export const COOKIES_HEADER = "webmcp-gateway-cookies";
/** The header with the content security policy of the backend. */
export const POLICY_HEADER = "webmcp-gateway-csp";

/** A navigation. `entries` are those of a form that is posted. */
export interface Navigation {
  url: string;
  method?: string;
  entries?: [name: string, value: string | File][];
  enctype?: string;
  /** Whether it takes the place of the current page in the history. */
  replace?: boolean;
  reload?: boolean;
  /** Whether a person acted just before. */
  user?: boolean;
  /** Whether a frame leads the whole page elsewhere. */
  whole?: boolean;
}

/** The values that the shell writes into the head of a page. */
export interface PageFacts {
  url: string;
  /** The base of its relative URLs. */
  base: string;
  /** The origin at which all pages find themselves. */
  origin: string;
  referrer: string;
  cookies: string;
  /** The state of its entry in the history. */
  state: unknown;
  /** The policies of the backend that restrict where forms lead: their `form-action`. */
  formAction: string[][];
  /** The pages around a frame, and its own; absent for a page that is in none. */
  above?: string[];
}

/** JSON in ASCII, as header fields need it. */
export const asciiJson = (value: unknown): string =>
  JSON.stringify(value).replace(/[^\0-\x7f]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
