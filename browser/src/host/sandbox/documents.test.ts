/** When a proxy asks for another address of a document. */
import { beforeEach, expect, test, vi } from "vitest";
import { Documents } from "./documents";

const events = { onDocument: vi.fn(), onOther: vi.fn(), onFailure: vi.fn() };
let documents: Documents;

beforeEach(() => {
  vi.useFakeTimers();
  vi.resetAllMocks();
  documents = new Documents(events);
  documents.expect();
});

test("the gateway's document is known by its first message, whether that comes before its load event or after", () => {
  documents.announced();
  documents.loaded();
  documents.loaded();
  documents.announced();
  vi.runAllTimers();
  expect(events.onDocument).toHaveBeenCalledTimes(2);
  expect(events.onOther).not.toHaveBeenCalled();
});

test("anything else that is loaded needs a new address", () => {
  documents.announced();
  documents.loaded();
  documents.loaded();
  vi.runAllTimers();
  expect(events.onOther).toHaveBeenCalledOnce();
  expect(documents.wanted).toBe(true);
  documents.expect();
  expect(documents.wanted).toBe(false);
});

test("an origin at which there never is a document is given up", () => {
  for (let at = 0; at < 4; at++) {
    documents.loaded();
    vi.runAllTimers();
    documents.expect();
  }
  expect(events.onOther).toHaveBeenCalledTimes(3);
  expect(events.onFailure).toHaveBeenCalledOnce();
});
