import { beforeEach, expect, test } from "vitest";
import { createModelContext } from "./model-context";
import { createRegistry, type Registry } from "./registry";

interface Listed {
  name: string;
  inputSchema?: unknown;
  origin: string;
}

interface Context extends EventTarget {
  registerTool(tool: unknown, options?: unknown): Promise<void>;
  getTools(): Promise<Listed[]>;
  executeTool(tool: unknown, input?: unknown, options?: unknown): Promise<string | null>;
  provideContext(context: unknown): void;
  unregisterTool(name: string): void;
}

let registry: Registry;
let context: Context;
const tool = (more: object = {}) => ({ name: "add", description: "Adds.", execute: ({ a }: { a: number }) => ({ sum: a + 1 }), ...more });

/** The first tool, as returned by `getTools`. */
const listed = async (): Promise<Listed> => (await context.getTools())[0]!;

beforeEach(() => {
  registry = createRegistry();
  context = createModelContext(registry, { location: { origin: "null" } }) as Context;
});

test("a registered tool is there at once, listed and executed", async () => {
  void context.registerTool(tool());
  expect(registry.get("add")?.definition.inputSchema).toEqual({ type: "object", properties: {} });
  const one = await listed();
  expect(one).toMatchObject({ name: "add", origin: "null" });
  expect(one).not.toHaveProperty("inputSchema");
  expect(await context.executeTool(one, { a: 1 })).toBe('{"sum":2}');
  expect(await context.executeTool(one, '{"a": 2}')).toBe('{"sum":3}');
  for (const wrong of ["1", "no JSON", "null"]) await expect(context.executeTool(one, wrong)).rejects.toBeInstanceOf(TypeError);
});

test("what MCP knows of a tool is told to the model, as the page wrote it", async () => {
  const annotations = { readOnlyHint: 1, destructiveHint: false, title: "T", untrustedContentHint: undefined };
  const outputSchema = { type: "object", properties: { sum: { type: "number" } } };
  await context.registerTool(tool({ title: "Add", annotations, outputSchema, inputSchema: { properties: { a: {} } } }));
  expect(registry.get("add")?.definition).toEqual({
    name: "add", title: "Add", description: "Adds.", inputSchema: { type: "object", properties: { a: {} } }, outputSchema,
    annotations: { readOnlyHint: true, untrustedContentHint: false, destructiveHint: false, title: "T" },
  });
  expect(await listed()).toMatchObject({ inputSchema: { properties: { a: {} } }, annotations: { debugging: false, readOnlyHint: true } });
});

test("what of that has no JSON is left out", async () => {
  const circle: Record<string, unknown> = {};
  circle["self"] = circle;
  await context.registerTool(tool({ annotations: { readOnlyHint: true, title: circle }, outputSchema: circle }));
  expect(registry.get("add")?.definition).toMatchObject({ annotations: { readOnlyHint: true } });
  expect(registry.get("add")?.definition).not.toHaveProperty("outputSchema");
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

test("toolchange tells of each change, later than all that waits by then", async () => {
  let events = 0;
  context.addEventListener("toolchange", () => events++);
  const done = [context.registerTool(tool()), context.registerTool(tool({ name: "two" }))];
  await Promise.resolve();
  expect(events).toBe(0);
  await Promise.all(done);
  expect(events).toBe(2);
});

test("executeTool rejects with the reason of its signal; the page hears of the abort", async () => {
  let seen: AbortSignal | undefined;
  const begun = new Promise<void>((go) => {
    void context.registerTool(tool({ execute: (_: object, client: { signal: AbortSignal }) => new Promise(() => go(void (seen = client.signal))) }));
  });
  const controller = new AbortController();
  const running = context.executeTool(await listed(), {}, { signal: controller.signal });
  await begun;
  controller.abort("enough");
  await expect(running).rejects.toBe("enough");
  await new Promise((go) => seen!.addEventListener("abort", go));
  expect(seen!.reason).toMatchObject({ name: "AbortError" });
});

test("a call that is aborted before it begins never does", async () => {
  let ran = false;
  await context.registerTool(tool({ execute: () => (ran = true) }));
  const controller = new AbortController();
  const running = context.executeTool(await listed(), {}, { signal: controller.signal });
  controller.abort("enough");
  await expect(running).rejects.toBe("enough");
  await new Promise((go) => setTimeout(go, 20));
  expect(ran).toBe(false);
});

test("names of earlier drafts work: handler, provideContext, unregisterTool", async () => {
  context.provideContext({ tools: [tool({ execute: undefined, handler: () => "old" })] });
  expect(await context.executeTool(await listed())).toBe("old");
  context.provideContext({ tools: [tool({ name: "other" })] });
  expect((await context.getTools()).map(({ name }) => name)).toEqual(["other"]);
  context.unregisterTool("other");
  expect(await context.getTools()).toEqual([]);
});
