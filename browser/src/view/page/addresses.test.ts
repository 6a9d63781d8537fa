import { expect, test } from "vitest";
import { createAddresses } from "./addresses";

const SRCDOC = { href: "about:srcdoc#x", origin: "null", pathname: "srcdoc", protocol: "about:" };
const BLOB = { href: "blob:http://host.example/1-2", origin: "http://host.example", pathname: "http://host.example/1-2", protocol: "blob:" };
const SERVED = { href: "https://host.example/sandbox/proxy.html", origin: "https://host.example", pathname: "/sandbox/proxy.html", protocol: "https:" };

const wireOf = (base: string, documentBase: string, place = SRCDOC) => {
  const { resolve, toWire } = createAddresses("cart", base, documentBase, place);
  return (input: string) => toWire(resolve(input));
};

test("relative URLs are the app's, whatever document they stand in", () => {
  for (const documentBase of ["about:srcdoc", "blob:null/1-2-3", "https://host.example/sandbox/proxy.html"]) {
    const wire = wireOf("/", documentBase);
    expect([wire("/api/cart?a=1"), wire("api/cart"), wire("?q"), wire("./a/../b")]).toEqual(["/api/cart?a=1", "/api/cart", "/?q", "/b"]);
  }
});

test("what was resolved against the embedder's document means the app", () => {
  const wire = wireOf("/shop/", "https://host.example/sandbox/proxy.html");
  expect(wire("https://host.example/api/cart")).toBe("/api/cart");
  expect(wire("https://host.example/sandbox/api/cart?x=1")).toBe("/shop/api/cart?x=1");
});

test("URLs of other origins stay absolute", () => {
  expect(wireOf("/", "about:srcdoc")("https://api.example/x?y")).toBe("https://api.example/x?y");
});

test("an app's own site as base makes its absolute URLs the app's", () => {
  const wire = wireOf("http://cart.localhost:8080/", "http://sandbox.localhost:8080/proxy.html");
  expect(wire("http://cart.localhost:8080/api/cart")).toBe("/api/cart");
  expect(wire("/api/cart")).toBe("/api/cart");
});

test("percent-encoding is left as the page wrote it", () => {
  expect(wireOf("/", "about:srcdoc")("/a%2Fb/%7e?q=%20")).toBe("/a%2Fb/%7e?q=%20");
});

test("what a page makes of the place of its document means the app", () => {
  const srcdoc = wireOf("/shop/", "https://host.example/");
  expect(["null/api", "null", "nullsrcdoc?a", "about:///api", "about:srcdoc"].map(srcdoc)).toEqual(["/api", "/shop/", "/shop/?a", "/api", "/shop/"]);
  const blob = wireOf("/", "blob:http://host.example/1-2", BLOB);
  expect(["http://host.example/api", "http://host.examplehttp://host.example/1-2", "blob:///api", BLOB.href].map(blob)).toEqual(["/api", "/", "/api", "/"]);
  const { resolveOwn } = createAddresses("cart", "/", "about:srcdoc", SRCDOC);
  expect(["nullable", "/api", "about:blank", "blob:null/1"].map(resolveOwn)).toEqual([undefined, undefined, undefined, undefined]);
  expect(createAddresses("cart", "/", SERVED.href, SERVED).resolveOwn("https://host.example/api")).toBeUndefined();
});
