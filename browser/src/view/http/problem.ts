/** The runtime's own answers, in the gateway's form: problem details (RFC 9457), for people to read. */

import type { Params } from "../host/json-rpc";

const TITLES = { 202: "Accepted", 413: "Content Too Large", 503: "Service Unavailable" };

/** The reason for which a request was not sent: the console tells a developer what the host lacks. */
export const NO_HOST_DETAIL = "The app cannot reach its server from here.";

/** The values of an `http_request` result. */
export function problemResult(status: keyof typeof TITLES, reason: string, detail: string, more?: Params): Params {
  const title = TITLES[status];
  const headers = { "content-type": "application/problem+json", "gateway-reason": reason };
  return { status, statusText: title, headers, bodyType: "json", body: { type: "about:blank", title, status, detail, ...more } };
}
