/** The types of the gateway's REST interface and event stream. */
import type { JsonObject } from "../mux";
import type { Story } from "./story";

export type { Json, JsonObject } from "../mux";

export type Initiator = "person" | "page" | "model";
export type Answer = "approve" | "decline";

/** An app that this gateway serves; `site` is its own web site, `sandbox_url` the signed address of its proxy page. */
export interface AppInfo {
  id: string;
  title: string;
  /** Null for the app of an upstream, which exists only in hosts. */
  site: string | null;
  resource: string;
  sandbox_url: string;
  /** The MCP server whose app it is. */
  upstream?: string | null;
  /** Calls that the console can play, if its configuration has them. */
  story?: Story | null;
}

export interface GatewayState {
  version: string;
  csrf: string;
  principal: { id: string; name: string };
  /** Whether this person may answer questions, and has a login to end. */
  may: { answer: boolean; logout: boolean };
  /** Whether this person may read what of an app works in a view. */
  checks: boolean;
  nodes: boolean;
  sandbox: string;
  apps: AppInfo[];
  /** Whether there are apps that this person may not use. */
  excluded: boolean;
  loopback: boolean;
  /** Whether there are accounts at other services that this person can connect. */
  accounts: boolean;
  /** Whether a changed app is shown at once, for its author. */
  live: boolean;
  problems: Problem[];
  /** Whether people are asked on this page; its approval pages answer in any case. */
  asks: boolean;
}

/** A problem of the gateway's configuration: a rejected file, a required restart, an app without a view, report mode. */
export interface Problem {
  kind: "record" | "broken" | "upstream" | "restart" | "view" | "report";
  file: string;
  line: number;
  column: number;
  message: string;
}

/** A parked call that a person is asked about: `size` is the body's size in bytes; times are in seconds since the epoch. */
export interface Question {
  id: string;
  app: string;
  /** The caller's owner, if that is another person. */
  whose?: string | null;
  view: string | null;
  message: string;
  method: string;
  target: string;
  headers: [name: string, value: string][];
  body: string;
  size: number;
  initiator: Initiator;
  evidence: string;
  created: number;
  expires: number;
  /** For how many seconds all calls under the same rule may be allowed; null for this one only. */
  grant: number | null;
}

/** A grant; times are in seconds since the epoch. */
export interface Grant {
  id: string;
  app: string;
  rule: string;
  message: string;
  created: number;
  expires: number;
}

/** A security key of the person. */
export interface SecurityKey {
  id: string;
  name: string;
  created: number;
}

/** The gateway's decision on a link that an app asks to open; `message` is the question to the person. */
export type LinkDecision = { decision: "open" | "declined" } | { decision: "ask"; message: string; url: string };

/** An account at another service; `since` is null if it is not connected. */
export interface Account {
  credential: string;
  title: string;
  scope: string[];
  since: number | null;
  account: string | null;
}

/** The accounts of the person; `for` identifies the person in links. */
export interface Accounts {
  for: string;
  connections: Account[];
}

/** A tool that a page registered: `name` is the model's, `page_name` the page's own. */
export interface ViewTool {
  name: string;
  page_name: string;
  title: string;
  description: string;
  input_schema: JsonObject;
  annotations: JsonObject;
}

export interface LiveView {
  id: string;
  app: string;
  opened: number;
  tools: ViewTool[];
  /** The name of the node that has it; missing for a gateway of one process. */
  node?: string | null;
}

/** One line of the record; an exchange has an intent and an outcome with the same `id`. `time` is in seconds. */
export interface Line {
  id: string;
  phase: "intent" | "outcome";
  time: number;
  fields: JsonObject;
}

export type Connection = "connecting" | "open" | "lost";

export interface Finding {
  topic: string;
  what: string;
  verdict: "works" | "needs" | "never";
  detail: string;
  lines: string[];
  under: string;
  places: string[];
}

/** A node as another one, or itself, knows it; `renewed` and `up` are seconds, `owns` numbers by kind. */
export interface GatewayNode {
  name: string;
  incarnation: string;
  state: "serving" | "draining" | "ended" | "unsigned";
  renewed: number;
  up: number;
  version: string;
  configuration: string;
  owns: Partial<Record<string, number>>;
  reached?: boolean;
  detail?: string;
  seconds?: number;
  redis_problem?: string | null;
}

/** The nodes of the gateway; `here` is the incarnation of the one that answered. */
export interface Nodes {
  here: string;
  nodes: GatewayNode[];
  differing: string[];
  redis: boolean;
}

/** The parts of an app that work in a view; `hosts` are the restrictions by host. */
export interface Advice {
  app: string;
  problems: string[];
  findings: Finding[];
  hosts: Record<string, string[]>;
}
