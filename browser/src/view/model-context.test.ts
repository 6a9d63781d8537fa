import { beforeEach, expect, test } from "vitest";
import { createModelContext } from "./model-context";
import { createRegistry, type Registry } from "./registry";

interface Context extends EventTarget {
  registerTool(tool: unknown, options?: unknown): Promise<void>;
  getTools(): Promise<{ name: string; inputSchema: unknown; origin: string }[]>;
  executeTool(tool: unknown, input?: unknown, options?: unknown): Promise<string | null>;
  provideContext(context: unknown): void;
  unregisterTool(name: string): void;
}

let registry: Registry;
let context: Context;
const tool = (more: object = {}) => ({ name: "add", description: "Adds.", execute: ({ a }: { a: number }) => ({ sum: a + 1 }), ...more });

beforeEach(() => {
  registry = createRegistry();
  context = createModelContext(registry, { location: { origin: "null" } }) as Context;
});

test("a registered tool is there at once, listed and executed", async () => {
  void context.registerTool(tool());
  expect(registry.get("add")).toBeDefined();
  const [listed] = await context.getTools();
  expect(listed).toMatchObject({ name: "add", origin: "null", inputSchema: { type: "object" } });
  expect(await context.executeTool(listed, { a: 1 })).toBe('{"sum":2}');
  expect(await context.executeTool(listed, '{"a": 2}')).toBe('{"sum":3}');
});

test("a second tool of a name, and a name out of the pattern, are an InvalidStateError", async () => {
  await context.registerTool(tool());
  await expect(context.registerTool(tool())).rejects.toMatchObject({ name: "InvalidStateError" });
  for (const name of ["", "a b", "ä", "x".repeat(129)]) {
    await expect(context.registerTool(tool({ name }))).rejects.toMatchObject({ name: "InvalidStateError" });
  }
});

test("a missing member or a schema that is no object is a TypeError", async () => {
  for (const wrong of [{ description: undefined }, { execute: undefined }, { inputSchema: "{}" }, { name: undefined }]) {
    await expect(context.registerTool(tool(wrong))).rejects.toBeInstanceOf(TypeError);
  }
  await expect(context.registerTool(undefined)).rejects.toBeInstanceOf(TypeError);
});

test("aborting the signal removes the tool; an aborted one never registers", async () => {
  const controller = new AbortController();
  await context.registerTool(tool(), { signal: controller.signal });
  controller.abort();
  expect(registry.all()).toEqual([]);
  await expect(context.registerTool(tool(), { signal: controller.signal })).rejects.toMatchObject({ name: "AbortError" });
});

test("the signal of a tool that is gone does not take away the next one of its name", async () => {
  const controller = new AbortController();
  await context.registerTool(tool(), { signal: controller.signal });
  const [first] = registry.all();
  registry.remove(first!);
  await context.registerTool(tool());
  controller.abort();
  expect(registry.all()).toHaveLength(1);
});

test("toolchange tells of changes, once for those of a moment, and later than all that waits by then", async () => {
  let events = 0;
  context.addEventListener("toolchange", () => events++);
  void context.registerTool(tool());
  void context.registerTool(tool({ name: "two" }));
  await Promise.resolve();
  expect(events).toBe(0);
  await new Promise((go) => setTimeout(go));
  expect(events).toBe(1);
});

test("executeTool rejects with the reason of its signal, and gives it to the page", async () => {
  let seen: AbortSignal | undefined;
  void context.registerTool(tool({ execute: (_: object, client: { signal: AbortSignal }) => new Promise(() => (seen = client.signal)) }));
  const controller = new AbortController();
  const running = context.executeTool({ name: "add" }, {}, { signal: controller.signal });
  controller.abort("enough");
  await expect(running).rejects.toBe("enough");
  expect(seen?.aborted).toBe(true);
});

test("names of earlier drafts work: handler, provideContext, unregisterTool", async () => {
  context.provideContext({ tools: [tool({ execute: undefined, handler: () => "old" })] });
  expect(await context.executeTool({ name: "add" })).toBe("old");
  context.provideContext({ tools: [tool({ name: "other" })] });
  expect((await context.getTools()).map(({ name }) => name)).toEqual(["other"]);
  context.unregisterTool("other");
  expect(await context.getTools()).toEqual([]);
});
