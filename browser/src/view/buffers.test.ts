import { beforeAll, expect, it, vi } from "vitest";
import { joinInPieces } from "./buffers";
import { createResponse, type Answer } from "./response";

const MIB = 1 << 20;

function response(size: number, headers: [string, string][] = [], signal?: AbortSignal): Response {
  const part = (at: number, bytes: number): Answer => ({
    status: 200,
    statusText: "",
    headers,
    body: new Uint8Array(bytes).fill(at),
    url: "",
    redirected: false,
    stream: at < 2 ? `part-${at + 1}` : undefined,
  });
  const parts = { next: (id: string) => Promise.resolve(part(Number(id.slice(5)), size)), cancel: () => undefined };
  return createResponse(part(0, size), "https://app.invalid/", signal, parts);
}

/** Where the parts begin, and how much there is. */
const seen = (bytes: Uint8Array, size: number): number[] => [bytes[0]!, bytes[size]!, bytes[2 * size]!, bytes.length];

beforeAll(() => {
  vi.stubGlobal("document", { hidden: false });
  joinInPieces(globalThis);
});

it.each<[string, number, [string, string][]]>([
  ["a long body of which nothing is known", 2 * MIB, []],
  ["a long body whose length is told", 2 * MIB, [["content-length", `${6 * MIB}`]]],
  ["a short one", 10, [["content-length", "30"]]],
])("gives %s whole, and once", async (_, size, headers) => {
  const whole = response(size, headers);
  expect(seen(new Uint8Array(await whole.arrayBuffer()), size)).toEqual([0, 1, 2, 3 * size]);
  expect(whole.bodyUsed).toBe(true);
  await expect(whole.arrayBuffer()).rejects.toThrow(TypeError);
});

it("gives the bytes of both clones", async () => {
  const whole = response(2 * MIB);
  const clone = whole.clone();
  expect(seen(await whole.bytes(), 2 * MIB)).toEqual([0, 1, 2, 6 * MIB]);
  expect(seen(await clone.bytes(), 2 * MIB)).toEqual([0, 1, 2, 6 * MIB]);
});

it("fails as the browser's own does where somebody else reads the body", async () => {
  const whole = response(2 * MIB);
  whole.body!.getReader();
  await expect(whole.arrayBuffer()).rejects.toThrow(TypeError);
});

it("fails with the reason of the signal", async () => {
  const controller = new AbortController();
  const whole = response(2 * MIB, [], controller.signal);
  controller.abort("enough");
  await expect(whole.arrayBuffer()).rejects.toBe("enough");
});

it("leaves to the browser what the page makes itself", async () => {
  expect((await new Response("own").arrayBuffer()).byteLength).toBe(3);
});

it("needs no timer of a hidden page, nor the page's own", async () => {
  vi.stubGlobal("document", { hidden: true });
  vi.stubGlobal("setTimeout", () => 0);
  expect((await response(2 * MIB).arrayBuffer()).byteLength).toBe(6 * MIB);
});
