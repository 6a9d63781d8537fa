import { beforeEach, expect, test, vi } from "vitest";
import { toBase64Url } from "../base64";
import { METHOD_NOT_FOUND, PeerError, type Params } from "./json-rpc";
import { createProof, type Crypto, type Proof } from "./proof";

const bytes = crypto.getRandomValues(new Uint8Array(32));
const hmac = { name: "HMAC", hash: "SHA-256" };

let proof: Proof;
let launches: (string | undefined)[];
let formers: (string | undefined)[];
let timers: (() => void)[];
let refuse: boolean;
let silent: boolean;

const cryptoOf = (subtle: SubtleCrypto | undefined): Crypto => ({
  importKey: subtle && ((key) => subtle.importKey("raw", key, hmac, false, ["sign"])),
  sign: subtle && ((key, message) => subtle.sign("HMAC", key, message)),
});
const ends = {
  crypto: cryptoOf(crypto.subtle),
  later: (run: () => void) => timers.push(run),
  cancelTimer: () => undefined,
  warn: () => undefined,
  tools: () => ["get_cart"],
  onSettled: () => undefined,
};

function create(subtle: SubtleCrypto | undefined, answer?: Promise<never>): Proof {
  return createProof({
    ...ends,
    crypto: cryptoOf(subtle),
    attach: async (launch, former, read) => {
      launches.push(launch);
      formers.push(former);
      await answer;
      if (silent) throw new Error("No answer");
      const values = { view: `v${launches.length}`, key: toBase64Url(bytes), proven: true, free: ["add"] };
      return read({ content: [], structuredContent: values, isError: refuse } as Params);
    },
  });
}

beforeEach(() => {
  launches = [];
  formers = [];
  timers = [];
  refuse = silent = false;
  proof = create(crypto.subtle);
});

async function verified(view: string | undefined, id: string, number: string): Promise<boolean> {
  const key = await crypto.subtle.importKey("raw", bytes, hmac, false, ["sign"]);
  const signature = await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(number));
  return view === `${id}.${number}.${toBase64Url(new Uint8Array(signature))}`;
}

test("calls are signed with increasing numbers, in their order", async () => {
  proof.setLaunchValue("L");
  proof.start(false, true);
  const signed = await Promise.all([proof.sign(), proof.sign(), proof.sign()]);
  expect(launches).toEqual(["L"]);
  for (const index of [0, 1, 2]) expect(await verified(signed[index], "v1", String(index + 1))).toBe(true);
});

test("without a launch value it waits, then attaches unproven", async () => {
  proof.start(false, true);
  const signed = proof.sign();
  expect(launches).toEqual([]);
  timers[0]?.();
  expect(await verified(await signed, "v1", "1")).toBe(true);
  expect(launches).toEqual([undefined]);
});

test("a launch value that comes late makes a new view, whose numbers go on", async () => {
  proof.start(false, true);
  timers[0]?.();
  await proof.sign();
  proof.setLaunchValue("late");
  expect(await verified(await proof.sign(), "v2", "3")).toBe(true);
  expect(launches).toEqual([undefined, "late"]);
  expect(await verified(formers[1], "v1", "2")).toBe(true);
});

test("a launch value that comes twice is used once", async () => {
  proof.setLaunchValue("L");
  proof.start(false, true);
  await proof.sign();
  proof.setLaunchValue("L");
  await proof.sign();
  expect(launches).toEqual(["L"]);
});

test("an attach that is answered after a later one makes no view", async () => {
  const answers: ((id: string) => void)[] = [];
  const slow = createProof({
    ...ends,
    attach: (_, __, read) =>
      new Promise((resolve) => answers.push((view) => resolve(read({ content: [], structuredContent: { view, key: toBase64Url(bytes), free: [] } })))),
  });
  slow.setLaunchValue("first");
  slow.start(false, true);
  await vi.waitFor(() => expect(answers).toHaveLength(1));
  timers.at(-1)?.(); // the host is silent
  slow.setLaunchValue("second");
  await vi.waitFor(() => expect(answers).toHaveLength(2));
  answers[1]?.("v2");
  await slow.whenSettled();
  answers[0]?.("v1");
  expect(await verified(await slow.sign(), "v2", "1")).toBe(true);
  expect(await verified(await slow.sign(), "v2", "2")).toBe(true);
});

test("another launch value waits for the attach of the first, and names that view with proof", async () => {
  proof.setLaunchValue("first");
  proof.start(false, true);
  proof.setLaunchValue("second");
  expect(await verified(await proof.sign(), "v2", "2")).toBe(true);
  expect(launches).toEqual(["first", "second"]);
  expect(await verified(formers[1], "v1", "1")).toBe(true);
  refuse = true;
  proof.setLaunchValue("third");
  expect(await verified(await proof.sign(), "v2", "4")).toBe(true);
});

test("in our own host there is neither attach nor signature", async () => {
  proof.setLaunchValue("L");
  const early = proof.sign();
  proof.start(true, true);
  proof.setLaunchValue("L2");
  expect([await early, await proof.sign(), launches]).toEqual([undefined, undefined, []]);
});

test("without crypto.subtle the launch value is not used up, and the view stays unproven", async () => {
  proof = create(undefined);
  proof.setLaunchValue("L");
  proof.start(false, true);
  expect(await proof.sign()).toBeUndefined();
  expect(launches).toEqual([undefined]);
});

test("free tools are offered, no others; where attach was refused, none is", async () => {
  expect(proof.isOffered("add")).toBe(false);
  proof.setLaunchValue("L");
  proof.start(false, true);
  await proof.whenSettled();
  expect([proof.isOffered("add"), proof.isOffered("clear_cart")]).toEqual([true, false]);
  proof = create(crypto.subtle);
  refuse = true;
  proof.setLaunchValue("L");
  proof.start(false, true);
  await proof.whenSettled();
  expect([proof.isOffered("add"), proof.isOffered("get_cart"), await proof.sign()]).toEqual([false, false, undefined]);
});

test("where attach had no answer, what the page says of its tools counts, until there is one", async () => {
  silent = true;
  proof.start(false, false);
  await proof.whenSettled();
  expect([proof.isOffered("add"), proof.isOffered("get_cart")]).toEqual([false, true]);
  silent = false;
  proof.setLaunchValue("L");
  await proof.whenSettled();
  expect([proof.isOffered("add"), proof.isOffered("get_cart")]).toEqual([true, false]);
});

test("where attach was answered by an error, no tool is offered; the host may only say that it carries no calls", async () => {
  const words = [[-32000, false], [-32602, false], [METHOD_NOT_FOUND, true]] as const;
  for (const [code, offered] of words) {
    proof = create(crypto.subtle, Promise.reject(new PeerError({ code, message: "no" })));
    proof.setLaunchValue("L");
    proof.start(false, true);
    await proof.whenSettled();
    expect([proof.isOffered("get_cart"), await proof.sign()]).toEqual([offered, undefined]);
  }
});

test("where attach is answered late, what the page says of its tools counts until then", async () => {
  const late = Promise.withResolvers<never>();
  proof = create(crypto.subtle, late.promise);
  proof.setLaunchValue("L");
  proof.start(false, true);
  await vi.waitFor(() => timers.at(-1)!());
  await proof.whenSettled();
  expect(proof.isOffered("get_cart")).toBe(true);
  late.reject(new PeerError({ code: -32000, message: "the person said no" }));
  await vi.waitFor(() => expect(proof.isOffered("get_cart")).toBe(false));
});

test("what the gateway said of tools stays where it refuses, or does not answer, another launch value", async () => {
  proof.setLaunchValue("L");
  proof.start(false, true);
  await proof.whenSettled();
  for (refuse of [true, false]) {
    silent = !refuse;
    proof.setLaunchValue("again");
    await proof.whenSettled();
    expect([proof.isOffered("add"), proof.isOffered("get_cart")]).toEqual([true, false]);
  }
});

test("a call that a restarted gateway refused attaches again with the launch value, once for several calls", async () => {
  proof.setLaunchValue("L");
  proof.start(false, true);
  const [first, second] = [await proof.sign(), await proof.sign()];
  const again = await Promise.all([proof.sign(first), proof.sign(second), proof.sign()]);
  expect(await verified(await proof.sign(second), "v2", "7")).toBe(true);
  expect(launches).toEqual(["L", "L"]);
  for (const [index, view] of again.entries()) expect(await verified(view, "v2", String(index + 4))).toBe(true);
  expect(await verified(await proof.sign(again[2]), "v3", "9")).toBe(true);
});
