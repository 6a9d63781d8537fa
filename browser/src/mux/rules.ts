/** The protocol's rules as tables: the transitions of a view and the methods of its channels, by sender. */
import type { Channel, Frame } from "./frames";

/** Calls in flight per view, channel and direction. */
export const IN_FLIGHT_LIMIT = 64;

/** Closed views whose late frames are recognized as crossed with the close. */
export const CLOSED_REMEMBERED = 256;

/** An end of the bridge: the page that shows views, or the gateway. */
export type Role = "host" | "gateway";

/** The state of a view on this connection. */
export type State = "absent" | "opening" | "resuming" | "open" | "closed";

type Kind = Frame["type"];

/**
 * The state of a view after a frame of the role; other frames violate the protocol.
 *
 * In state `closed` a frame has crossed with the close, and is dropped.
 */
export const TRANSITIONS: Record<Role, Partial<Record<State, Partial<Record<Kind, State>>>>> = {
  host: {
    absent: { open: "opening", resume: "resuming" },
    resuming: { close: "closed" },
    open: { message: "open", gesture: "open", focus: "open", close: "closed" },
    closed: { message: "closed", gesture: "closed", focus: "closed", close: "closed" },
  },
  gateway: {
    opening: { opened: "open", error: "absent" },
    resuming: { resume: "open", error: "absent" },
    open: { message: "open", error: "open", close: "closed" },
    closed: { message: "closed", resume: "closed", error: "closed", close: "closed" },
  },
};

/** The methods that one end may use on one channel. */
export interface Methods {
  calls: ReadonlySet<string>;
  notices: ReadonlySet<string>;
}

/** On ui the host is the client; on webmcp the gateway is the client and the page, through its host, the server. */
export const METHODS: Record<Channel, Record<Role, Methods>> = {
  ui: {
    host: {
      calls: new Set([
        "initialize",
        "server/discover",
        "tools/list",
        "tools/call",
        "resources/read",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "ping",
      ]),
      notices: new Set(["notifications/initialized", "notifications/cancelled", "notifications/progress"]),
    },
    gateway: {
      calls: new Set(["ping"]),
      notices: new Set([
        "notifications/progress",
        "notifications/cancelled",
        "notifications/message",
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
        // notifications to an app about the model's call that opens it (MCP Apps), for the host page to forward
        "ui/notifications/tool-input",
        "ui/notifications/tool-input-partial",
        "ui/notifications/tool-result",
        "ui/notifications/tool-cancelled",
      ]),
    },
  },
  webmcp: {
    gateway: {
      calls: new Set(["initialize", "tools/list", "tools/call", "ping"]),
      notices: new Set(["notifications/initialized", "notifications/cancelled"]),
    },
    host: {
      calls: new Set(["ping"]),
      notices: new Set(["notifications/tools/list_changed", "notifications/progress", "notifications/message"]),
    },
  },
};

/** The other end. */
export function other(role: Role): Role {
  return role === "host" ? "gateway" : "host";
}
