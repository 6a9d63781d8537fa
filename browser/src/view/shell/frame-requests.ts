/** Requests of pages in frames to the backend: the view runtime around them signs and sends them. */

import { readAsDataUrl } from "../base64";
import { objectOf, type Params } from "../host/json-rpc";
import { answerOf } from "../tools/results";
import type { HostLink } from "./host-link";
import { COOKIES_HEADER, PAGE_HEADER } from "./protocol";

export type Respond = (response: { result: Params } | { error: { code: number; message: string } }, transfer?: Transferable[]) => void;

/**
 * Sends a call of `http_request` of a page, which `page` describes; returns the function that cancels it.
 *
 * `blobs`: the host takes bodies as a `Blob`. `cookies` receives those that scripts may read.
 */
export function sendHttp(
  host: HostLink, params: Params, page: string, blobs: boolean, respond: Respond, cookies?: (text: string | undefined) => void,
): () => void {
  const args = objectOf(params["arguments"]);
  const headers = { ...objectOf(args["headers"]), [PAGE_HEADER]: page };
  let over = false;
  let cancel = (): void => void (over = true);
  void (async () => {
    const body = args["body"] instanceof Blob && !blobs ? (await readAsDataUrl(args["body"])).replace(/^.*?,/s, "") : args["body"];
    if (over) return;
    cancel = host.send("tools/call", { ...params, arguments: { ...withMeantMethod(args), headers, ...(body !== undefined && { body }) } }, ({ result, error }) => {
      if (error || !result) return respond({ error: error ?? { code: 0, message: "no result" } });
      const given = answerOf(result);
      const own = objectOf(given?.["headers"]);
      cookies?.(own[COOKIES_HEADER] as string | undefined);
      delete own[COOKIES_HEADER];
      const bytes = given?.["body"];
      respond({ result }, bytes instanceof ArrayBuffer ? [bytes] : []);
    });
  })();
  return () => cancel();
}

/** Frameworks write the method of a form into a field; the gateway decides on the method that is sent. */
function withMeantMethod(args: Params): Params {
  if (args["method"] !== "POST" || args["bodyType"] !== "urlEncoded" || typeof args["body"] !== "string") return args;
  const fields = new URLSearchParams(args["body"]);
  const meant = fields.get("_method") ?? "";
  if (!/^(put|patch|delete)$/i.test(meant)) return args;
  fields.delete("_method");
  return { ...args, method: meant.toUpperCase(), body: String(fields) };
}
