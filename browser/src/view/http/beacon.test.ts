import { expect, test } from "vitest";
import { withKeepalive } from "./beacon";

test("requests with keepalive may have 64 KiB under way, all together", async () => {
  let answer = (): void => undefined;
  const fetch = withKeepalive(() => new Promise((resolve) => (answer = () => resolve(new Response()))));
  const sent = (bytes: number): Promise<unknown> => fetch("data:,", { method: "POST", keepalive: true, body: "x".repeat(bytes) });
  const first = sent(60000);
  await expect(sent(5537)).rejects.toThrow("Failed to fetch");
  answer();
  await first;
  const next = sent(65536);
  answer();
  await next;
});
