/** The runtime's own answers, in the gateway's form: problem details (RFC 9457), for people to read. */

import type { Params } from "../host/json-rpc";

const WORDS = { 202: "Accepted", 413: "Content Too Large", 503: "Service Unavailable" };

/** Why a request was not sent: the console tells a developer what the host lacks. */
export const OUT_OF_REACH = "The app cannot reach its server from here.";

/** The values of an `http_request` result. */
export function problem(status: keyof typeof WORDS, reason: string, detail: string, more?: Params): Params {
  const title = WORDS[status];
  const headers = { "content-type": "application/problem+json", "gateway-reason": reason };
  return { status, statusText: title, headers, bodyType: "json", body: { type: "about:blank", title, status, detail, ...more } };
}
