/** The frames of the bridge, with their serialization and parsing. */
import { MuxError } from "./errors";
import { byteLength, isObject, parse, type Json, type JsonObject } from "./text";

/** The largest frame, in bytes of UTF-8. */
export const FRAME_LIMIT = 1024 * 1024;

/** Milliseconds after which a gesture is no longer reported. */
export const GESTURE_LIMIT = 5000;

/** One of the two conversations with a view; they never mix. */
export type Channel = "ui" | "webmcp";

export const CHANNELS: readonly Channel[] = ["ui", "webmcp"];

/** Either: one JSON-RPC object on one channel of one view. */
export interface MessageFrame {
  type: "message";
  view: string;
  channel: Channel;
  message: JsonObject;
}

export type Frame =
  /** Host: the first frame; `ticket` is valid once. */
  | { type: "hello"; ticket: string }
  /**
   * Host: a new view of `app`, or of the app at `resource` of an `upstream`; `ref` identifies it until there is an id.
   * `sha256` is the digest, in hex, of the HTML that the host has already: the gateway compares it with its own.
   */
  | ({ type: "open"; ref: string } & AppSource)
  /** Gateway: the view is open; `resume` is the token to resume it on another connection. */
  | { type: "opened"; ref: string; view: string; resource: string; links: string[]; resume: string }
  | MessageFrame
  /** Host: a person acted in the view at most `age` milliseconds ago. */
  | { type: "gesture"; view: string; age: number }
  /** Host: the person looks at this view. */
  | { type: "focus"; view: string }
  /** Either: the view is closed. */
  | { type: "close"; view: string; reason: string }
  /** Host: resume `view` with its token. Gateway: it is resumed, and `token` is the next one. */
  | { type: "resume"; view: string; token: string }
  /** Gateway: the request of `ref` or `view` is refused; with neither, the connection ends. */
  | { type: "error"; code: string; detail: string; ref?: string; view?: string };

/** An app of the gateway, or one of an upstream by its resource. */
export type AppSource =
  | { app: string; sha256?: string }
  | { upstream: string; resource: string; sha256?: string };

type Check = (value: Json) => boolean;

const CHECKS = {
  ticket: pattern(/^[!-~]{1,512}$/),
  token: pattern(/^[!-~]{1,512}$/),
  resume: pattern(/^[!-~]{1,512}$/),
  ref: pattern(/^[A-Za-z0-9_.:-]{1,64}$/),
  app: pattern(/^[a-z][a-z0-9-]{0,23}$/),
  upstream: pattern(/^[a-z][a-z0-9-]{0,23}$/),
  sha256: pattern(/^[0-9a-f]{64}$/),
  view: pattern(/^[A-Za-z0-9_-]{22,64}$/),
  resource: pattern(/^(ui|mcp-app):\/\/[!-~]{1,1024}$/),
  code: pattern(/^[a-z][a-z0-9-]{0,63}$/),
  reason: pattern(/^.{0,256}$/su),
  detail: pattern(/^.{0,1024}$/su),
  age: (value: Json) => Number.isInteger(value) && (value as number) >= 0 && (value as number) <= GESTURE_LIMIT,
  links: (value: Json) => Array.isArray(value) && value.every((link) => typeof link === "string"),
} satisfies Record<string, Check>;

type Member = keyof typeof CHECKS;

/** The members of a kind of frame: those of one of its `forms`, if it has several, and optional ones. */
interface Members {
  needed: readonly Member[];
  forms?: readonly (readonly Member[])[];
  optional?: readonly Member[];
}

const MEMBERS: ReadonlyMap<string, Members> = new Map<string, Members>([
  ["hello", { needed: ["ticket"] }],
  ["open", { needed: ["ref"], forms: [["app"], ["upstream", "resource"]], optional: ["sha256"] }],
  ["opened", { needed: ["ref", "view", "resource", "links", "resume"] }],
  ["gesture", { needed: ["view", "age"] }],
  ["focus", { needed: ["view"] }],
  ["close", { needed: ["view", "reason"] }],
  ["resume", { needed: ["view", "token"] }],
  ["error", { needed: ["code", "detail"], forms: [[], ["ref"], ["view"]] }],
]);

/** The text of a frame. Throws MuxError `too-large`. */
export function encode(frame: Frame): string {
  const { type, ...members } = frame;
  const text = JSON.stringify(type === "message" ? members : { [type]: members });
  checkSize(text);
  return text;
}

/** The frame in `text`. Throws MuxError `too-large`, `bad-json` or `bad-frame`; does not validate the message. */
export function decode(text: string): Frame {
  checkSize(text);
  const value = parse(text);
  if (!isObject(value)) throw badFrame("a frame is a JSON object");
  const names = Object.keys(value);
  if (names.length === 3 && ["view", "channel", "message"].every((name) => names.includes(name))) return message(value);
  const [name] = names;
  if (name === undefined || names.length !== 1) throw badFrame("a frame is a message, or has one member");
  return content(name, value[name] as Json);
}

function message(value: JsonObject): MessageFrame {
  const { view, channel, message } = value;
  if (channel !== "ui" && channel !== "webmcp") throw badFrame("channel: ui or webmcp");
  if (!isObject(message)) throw new MuxError("bad-message", "not one JSON-RPC 2.0 object");
  check("view", view as Json, "view");
  return { type: "message", view: view as string, channel, message };
}

function content(type: string, value: Json): Frame {
  const members = MEMBERS.get(type);
  if (!members) throw badFrame(`a frame is a message, or has one member of ${[...MEMBERS.keys()].join(", ")}`);
  const { needed, forms = [[]], optional = [] } = members;
  const names: readonly Member[] = [...needed, ...forms.flat(), ...optional];
  if (!isObject(value) || !Object.keys(value).every((name) => (names as readonly string[]).includes(name))) {
    throw badFrame(`${type}: an object of ${names.join(", ")}`);
  }
  for (const name of needed) check(`${type}.${name}`, value[name], name);
  const given = names.filter((name) => !needed.includes(name) && Object.hasOwn(value, name));
  const formed = given.filter((name) => !optional.includes(name));
  if (!forms.some((form) => form.length === formed.length && form.every((name) => formed.includes(name)))) {
    throw badFrame(`${type}: of its members ${forms.map((form) => form.join(" and ") || "none").join(" or ")}, not both`);
  }
  for (const name of given) check(`${type}.${name}`, value[name], name);
  return { type, ...value } as unknown as Frame;
}

function check(where: string, value: Json | undefined, member: Member): void {
  if (value === undefined || !CHECKS[member](value)) throw badFrame(`${where}: not of the form that it has`);
}

function pattern(form: RegExp): Check {
  return (value) => typeof value === "string" && form.test(value);
}

function checkSize(text: string): void {
  if (text.length > FRAME_LIMIT || (text.length > FRAME_LIMIT / 3 && byteLength(text) > FRAME_LIMIT)) {
    throw new MuxError("too-large", `a frame holds at most ${FRAME_LIMIT} bytes`);
  }
}

function badFrame(detail: string): MuxError {
  return new MuxError("bad-frame", detail);
}
