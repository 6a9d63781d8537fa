import { expect, test } from "vitest";
import { fromBase64, toBase64, toBase64Url } from "./base64";

test("bytes come back from both alphabets, whatever their length", () => {
  for (let length = 0; length < 70; length++) {
    const bytes = Uint8Array.from({ length }, (_, index) => (index * 151 + 7) & 255);
    expect(fromBase64(toBase64(bytes))).toEqual(bytes);
    expect(fromBase64(toBase64Url(bytes))).toEqual(bytes);
  }
});

test("a large body takes the same way", () => {
  const bytes = new Uint8Array(300_000).fill(200);
  expect(fromBase64(toBase64(bytes))).toEqual(bytes);
});

test("what is no base64 is refused", () => {
  expect(() => fromBase64("a*b")).toThrow(DOMException);
});
