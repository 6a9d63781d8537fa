import type { AppBridge } from "@modelcontextprotocol/ext-apps/app-bridge";
import { expect, test } from "vitest";
import { answerPage } from "./page-requests";

test("only links of the web are asked for, and what is not opened is said", async () => {
  const asked: string[] = [];
  const apps = { setRequestHandler: () => undefined } as unknown as AppBridge;
  answerPage(apps, () => null, { onopenlink: ({ href }) => asked.push(href) > 0 && !href.endsWith("/no") });
  const open = (url: string) => apps.onopenlink?.({ url }, {} as never);
  expect(await open("https://shop.example/tea")).toEqual({ isError: false });
  for (const url of ["https://shop.example/no", "javascript:alert(1)", "data:text/html,x", "mailto:a@shop.example", "tea"]) {
    expect(await open(url)).toEqual({ isError: true });
  }
  expect(asked).toEqual(["https://shop.example/tea", "https://shop.example/no"]);
});
