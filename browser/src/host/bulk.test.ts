/** Which answers have their bytes beside them. */
import { expect, test } from "vitest";
import { bytesNamed } from "./bulk";

const answer = (name: unknown) => ({ jsonrpc: "2.0", id: 1, result: { content: [], _meta: { "webmcp-gateway/bytes": name } } }) as never;

test("bytes have a name that the gateway made", () => {
  expect(bytesNamed(answer("A".repeat(22)))).toBe("A".repeat(22));
});

test.each(["../../api/state", "..", "", "A".repeat(21), `${"A".repeat(22)}/../x`, `${"A".repeat(22)}?x`, "//evil.example/x", 7, null, ["A".repeat(22)]])(
  "no name leads elsewhere, such as %j",
  (name) => {
    expect(bytesNamed(answer(name))).toBe(null);
  },
);
