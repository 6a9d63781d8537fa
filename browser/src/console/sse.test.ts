import { expect, test } from "vitest";
import { EventParser } from "./sse";

const STREAM =
  ': hello\r\nevent: record\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata:plain\n\nevent: empty\n\nid: 7\ndata: x\n\n';

function parse(pieces: string[]): unknown[] {
  const parser = new EventParser();
  return pieces.flatMap((piece) => parser.push(piece));
}

const WHOLE = [
  { event: "record", data: '{"a":\n1}' },
  { event: "message", data: "plain" },
  { event: "message", data: "x" },
];

test("events have their name and their lines of data; events without data are none", () => {
  expect(parse([STREAM])).toEqual(WHOLE);
});

test("it makes no difference where the stream is cut", () => {
  for (let cut = 1; cut < STREAM.length; cut++) {
    expect(parse([STREAM.slice(0, cut), STREAM.slice(cut)])).toEqual(WHOLE);
  }
});

test("comments are told", () => {
  let comments = 0;
  new EventParser(() => comments++).push(": ping\n\n: ping\n\n");
  expect(comments).toBe(2);
});
