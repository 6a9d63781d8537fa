/** Answers with separate bytes, and the limit of concurrent uploads. */
import { expect, test } from "vitest";
import { Bulk, bytesReference } from "./bulk";
import type { GatewayHttp } from "./gateway-http";

const answer = (name: unknown) => ({ jsonrpc: "2.0", id: 1, result: { content: [], _meta: { "webmcp-gateway/bytes": name } } }) as never;

test("bytes have a name that the gateway made", () => {
  expect(bytesReference(answer("A".repeat(22)))).toBe("A".repeat(22));
});

test.each(["../../api/state", "..", "", "A".repeat(21), `${"A".repeat(22)}/../x`, `${"A".repeat(22)}?x`, "//evil.example/x", 7, null, ["A".repeat(22)]])(
  "no name leads elsewhere, such as %j",
  (name) => {
    expect(bytesReference(answer(name))).toBe(null);
  },
);

const MEBIBYTE = 1024 * 1024;
const blob = (mebibytes: number) => ({ size: mebibytes * MEBIBYTE }) as Blob;

/** The sizes of the uploaded bodies, in MiB. */
function handing(): { bulk: Bulk; begun: number[] } {
  const begun: number[] = [];
  const http = { putBytes: async (_: string, { size }: Blob) => void begun.push(size / MEBIBYTE) } as unknown as GatewayHttp;
  return { bulk: new Bulk(http), begun };
}

test("a body that is too large is not handed over", async () => {
  const { bulk, begun } = handing();
  expect(await bulk.put(1, blob(65))).toBe("too-large");
  expect(begun).toEqual([]);
});

test("no more is under way than the largest has, and the others wait in their order", async () => {
  const { bulk, begun } = handing();
  const all = [40, 30, 20, 10].map((size, call) => bulk.put(call, blob(size)));
  await all[0];
  expect(begun).toEqual([40]);
  bulk.release(2); // abandoned while it waits
  bulk.release(0);
  await Promise.all([all[1], all[3]]);
  expect(begun).toEqual([40, 30, 10]);
});
