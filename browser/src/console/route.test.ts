import { expect, test } from "vitest";
import { appHash, approvalHash, parseRoute, rootOf } from "./route";

const at = (pathname: string, hash = "") => ({ origin: "http://g", pathname, hash });

test.each([
  [at("/"), { page: "app", app: undefined }],
  [at("/", "#/apps/cart"), { page: "app", app: "cart" }],
  [at("/", "#/approvals/a%2Fb"), { page: "approval", id: "a/b" }],
  [at("/approvals/a1"), { page: "approval", id: "a1" }],
  [at("/approvals/a1", "#/apps/cart"), { page: "app", app: "cart" }],
  [at("/", "#/check/cart"), { page: "advice", app: "cart" }],
  [at("/", "#/nodes"), { page: "nodes" }],
  [at("/", "#/approvals/%"), { page: "approval", id: "%" }],
])("%o leads to %o", (location, route) => {
  expect(parseRoute(location)).toEqual(route);
});

test("hashes lead back", () => {
  expect(parseRoute(at("/", appHash("cart")))).toEqual({ page: "app", app: "cart" });
  expect(parseRoute(at("/", approvalHash("x/y")))).toEqual({ page: "approval", id: "x/y" });
});

test.each([
  ["/", "http://g/"],
  ["/index.html", "http://g/"],
  ["/approvals/a1", "http://g/"],
  ["/under/prefix/", "http://g/under/prefix/"],
  ["/under/prefix/approvals/a1", "http://g/under/prefix/"],
])("the gateway's addresses at %s begin at %s", (path, root) => {
  expect(rootOf(at(path))).toBe(root);
});
