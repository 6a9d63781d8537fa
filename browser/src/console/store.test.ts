import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Api } from "./api";
import { Store } from "./store";

const LOGIN = "https://console.example/login?to=%2F";
const went: string[] = [];

beforeEach(() => {
  went.length = 0;
  const here = { pathname: "/", search: "", hash: "", assign: (to: string) => went.push(to), reload: () => went.push("reload") };
  vi.stubGlobal("location", here);
});

afterEach(() => vi.unstubAllGlobals());

/** A gateway that answers a logout with `answer`. */
function gateway(answer: () => Response): Store {
  vi.stubGlobal("fetch", () => Promise.resolve(answer()));
  return new Store(new Api("https://console.example/"));
}

test("who is not known goes to the login", () => {
  gateway(() => Response.json({})).onUnknown();
  expect(went).toEqual([LOGIN]);
});

test("who leaves goes where the logout leads, whatever the stream hears on the way", async () => {
  const store = gateway(() => Response.json({ to: "https://issuer.example/end" }));
  const leaving = store.leave();
  store.onUnknown();
  await leaving;
  store.onUnknown();
  expect(went).toEqual(["https://issuer.example/end"]);
});

test("a logout that fails shows what is so", async () => {
  await gateway(() => new Response(null, { status: 503 })).leave();
  expect(went).toEqual(["reload"]);
});

test("a change that arrives before the state that was read before it is not lost", async () => {
  const answers: ((apps: string[]) => void)[] = [];
  vi.stubGlobal("fetch", () =>
    new Promise<Response>((resolve) =>
      answers.push((apps) => resolve(Response.json({ version: "1", csrf: "c", apps: apps.map((id) => ({ id })) }))),
    ),
  );
  const store = new Store(new Api("https://console.example/"));
  const change = (): Promise<unknown> => new Promise((resolve) => store.addEventListener("change", resolve, { once: true }));
  store.connection("open", "");
  store.apps([]);
  expect(answers).toHaveLength(2);
  const changed = change();
  answers[1]?.([]);
  await changed;
  answers[0]?.(["pay"]);
  await new Promise((resolve) => setTimeout(resolve));
  expect(store.state?.apps).toEqual([]);
  expect(went).toEqual([]);
});
