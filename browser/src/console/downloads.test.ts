import { expect, test } from "vitest";
import { ApiError } from "./api";
import { filesIn } from "../host/files";
import { fileSaver } from "./downloads";

const file = (uri: string, blob = btoa("abc")) => ({ type: "resource" as const, resource: { uri, blob } });

/** A file saver with a scripted person. */
function saving(answers: boolean[], active = false, closed = new AbortController().signal) {
  const done: string[] = [];
  const save = fileSaver({
    isActive: () => active,
    closed,
    ask: async (message, names) => done.push(`${message} ${names}`) > 0 && answers.shift() === true,
    record: async (files, answered) => void done.push(`${answered ? "yes" : "no"} to ${files.map(({ name, blob }) => `${name} ${blob.size}`)}`),
    refuse: (words) => done.push(words),
    save: ({ name }) => done.push(`saved ${name}`),
  });
  return { done, save };
}

test("a file is saved once the person says so, with its name and size in sight", async () => {
  const { done, save } = saving([true]);
  expect(await save([file("file:///tea%20list.csv")])).toBe(true);
  expect(done).toEqual(["Save this file from the app? tea list.csv (3 B)", "yes to tea list.csv 3", "saved tea list.csv"]);
});

test("after a no an app asks again only with a gesture", async () => {
  const quiet = saving([false, true]);
  expect([await quiet.save([file("file:///a")]), await quiet.save([file("file:///a")])]).toEqual([false, false]);
  expect(quiet.done).toEqual(["Save this file from the app? a (3 B)", "no to a 3"]);
  const clicked = saving([false, true], true);
  expect([await clicked.save([file("file:///a")]), await clicked.save([file("file:///a")])]).toEqual([false, true]);
});

test("of a question whose app is closed nothing is recorded", async () => {
  const { done, save } = saving([false], false, AbortSignal.abort());
  expect(await save([file("file:///a")])).toBe(false);
  expect(done).toEqual(["Save this file from the app? a (3 B)"]);
});

test("what cannot be recorded is not saved", async () => {
  const done: string[] = [];
  const save = fileSaver({
    isActive: () => true,
    ask: async () => true,
    closed: new AbortController().signal,
    record: () => Promise.reject(new ApiError(503, "the record cannot be written")),
    refuse: (words) => done.push(words),
    save: ({ name }) => done.push(name),
  });
  expect(await save([file("file:///a")])).toBe(false);
  expect(done).toEqual(["the record cannot be written"]);
});

test("one question at a time", async () => {
  const { save } = saving([true, true], true);
  expect(await Promise.all([save([file("file:///a")]), save([file("file:///b")])])).toEqual([true, false]);
});

test.each([
  ["file:///a/..%2F..%2F.bashrc", "_.._.bashrc"],
  ["file:///..", "download"],
  ["file:///invoice%E2%80%AEgpj.exe", "invoice_gpj.exe"],
  ["file:///" + "x".repeat(300) + ".csv", "x".repeat(146) + ".csv"],
  ["file:///%zz", "%zz"],
  ["file:///\ud800.txt", "_.txt"],
  ["file:///" + "x".repeat(145) + "\u{1f600}yy.csv", "x".repeat(145) + "_.csv"],
  ["file:///\u202eC:\\con\0|<>.txt", "_C__con____.txt"],
  ["file:///" + ". ".repeat(5) + "a.txt" + " .".repeat(5), "a.txt"],
])("the name of %s", (uri, name) => {
  expect(filesIn([file(uri)])[0]?.name).toBe(name);
});

test("what is no file is not offered", () => {
  expect(filesIn([{ type: "resource_link", uri: "https://evil.example/x", name: "x" }])).toEqual([]);
  expect(filesIn([file("file:///a", "no base64!")])).toEqual([]);
  expect(filesIn(Array.from({ length: 17 }, () => file("file:///a")))).toEqual([]);
});

test("a name of many dots is read once", () => {
  // Quadratic matching would block the whole page for hours.
  const dots = ".".repeat(4 * 1024 * 1024);
  expect(filesIn([file(`file:///a${dots}b`)])[0]?.name).toBe("a" + ".".repeat(147) + ".b");
  expect(filesIn([file(`file:///a${dots}`)])[0]?.name).toBe("a");
});
