/** View proof: exchanges the launch value for a key, and signs each call with it. */

import { fromBase64, toBase64Url } from "../base64";
import { METHOD_NOT_FOUND, PeerError, type Params } from "./json-rpc";
import { answerOf } from "../tools/results";

export const LAUNCH = "webmcp-gateway/launch";

/** Milliseconds after `initialized` in which a host may deliver the launch value. */
const LAUNCH_TIMEOUT = 3000;
/** Milliseconds that calls wait for the answer to attach; a later one counts, too: some hosts ask a person first. */
const ATTACH_TIMEOUT = 15000;

export interface Proof {
  /** The handshake is done. In our own host the socket is the proof: no attach, no signature. Others may be unable to attach. */
  start(bridge: boolean, attaches: boolean): void;
  /** The host delivered a launch value. */
  setLaunchValue(value: string): void;
  /** The `_view` of one call, once attach was answered; undefined in our own host, and without a key. The view attaches again first if the gateway refused the call with `former` because it was restarted. */
  sign(former?: unknown): Promise<string | undefined>;
  /** Whether a tool may be offered without the gateway, by the answer to attach; without an answer, by the page's snapshot. */
  isOffered(name: string): boolean;
  whenSettled(): Promise<void>;
  /** The size limit of a message to the gateway in bytes, if known. */
  maxMessageSize(): number;
}

interface View {
  id: string;
  key: Promise<CryptoKey> | undefined;
  maxMessageSize: number;
}

export interface Crypto {
  /** HMAC-SHA-256, not extractable: a stolen key object can sign only in this page. */
  importKey?: ((key: BufferSource) => Promise<CryptoKey>) | undefined;
  sign?: ((key: CryptoKey, message: BufferSource) => Promise<ArrayBuffer>) | undefined;
}

interface ProofDependencies {
  crypto: Crypto;
  /** `former` is the view as which this page was attached before: its proof, or its id. */
  attach<Value>(launch: string | undefined, former: string | undefined, read: (result: Params) => Value): Promise<Value>;
  later(run: () => void, milliseconds: number): number;
  cancelTimer(timer: number | undefined): void;
  warn(line: string): void;
  /** The snapshot's tools that may be offered without the gateway. */
  tools(): unknown;
  /** The set of tools that may be offered without the gateway is known, or changed. */
  onSettled(): void;
}

export function createProof({ crypto, attach, later, cancelTimer, warn, tools, onSettled }: ProofDependencies): Proof {
  const { importKey, sign } = crypto;
  let view: View | undefined;
  /** The page's tools that may be offered without the gateway: by its answer, or by the snapshot until there is one. */
  let free: Set<unknown> | undefined;
  let snapshotTools: Set<unknown> | undefined;
  /** The newest launch value: hosts may deliver one twice, and a restarted gateway needs it again. */
  let launch: string | undefined;
  let started: "no" | "bridge" | "yes" = "no";
  let timer: number | undefined;
  let sequence = 0;
  /** The last number that was signed before the latest attachment began. */
  let floor = 0;
  let attempt = 0;
  let newest = 0;
  let release: (() => void) | undefined;
  let settled = new Promise<void>((resolve) => (release = resolve));
  let line: Promise<unknown> = Promise.resolve();
  let attaching: Promise<unknown> = line;
  /** The proof of the next call, made in advance: an unloading page has no time for it. */
  let nextProof: Promise<string | undefined> | undefined;

  function readView(result: Params): View {
    // Any answer is the gateway's.
    free ??= new Set();
    const given = result["isError"] ? undefined : answerOf(result);
    if (typeof given?.["view"] !== "string") throw new Error("refused");
    const { view: id, key, free: names, largest } = given as { view: string; key?: unknown; free?: string[]; largest?: number };
    free = new Set(names);
    return {
      id,
      key: typeof key === "string" ? importKey?.(fromBase64(key)) : undefined,
      maxMessageSize: largest ?? Infinity,
    };
  }

  function attachView(): void {
    const mine = ++attempt;
    cancelTimer(timer);
    if (!release) settled = new Promise<void>((resolve) => (release = resolve));
    // Without crypto.subtle a key would be useless: attach as an unproven view, for the list of free tools.
    const value = sign && launch;
    floor = sequence;
    // One after the other: the next one names the page's previous view.
    attaching = attaching.then(async () => {
      const former = (await nextProof) ?? view?.id;
      return new Promise<void>((next) => {
        const end = (): void => {
          nextProof = signNext();
          next();
          if (mine !== attempt) return;
          release?.();
          release = undefined;
          onSettled();
        };
        const fail = (error: unknown): void => {
          warn(`unproven view: ${error}`);
          // An error is an answer, too, except that of a host that carries no calls.
          if (error instanceof PeerError && error.code !== METHOD_NOT_FOUND) free ??= new Set();
          else snapshotTools = new Set(tools() as string[]);
          launch = undefined;
          end();
        };
        const silence = later(() => fail(new Error("no answer")), ATTACH_TIMEOUT);
        attach(value, former, readView)
          .then((given) => {
            // A late answer, overtaken by a newer one.
            if (mine < newest) return;
            newest = mine;
            view = given;
            end();
          }, fail)
          .finally(() => cancelTimer(silence));
      });
    });
  }

  async function signNext(): Promise<string | undefined> {
    if (!view?.key) return undefined;
    const { id, key } = view;
    const number = String(++sequence);
    const signature = await sign!(await key, new TextEncoder().encode(number));
    return `${id}.${number}.${toBase64Url(new Uint8Array(signature))}`;
  }

  async function takeProof(): Promise<string | undefined> {
    await settled;
    const mine = nextProof;
    nextProof = signNext();
    return mine;
  }

  return {
    start(bridge, attaches) {
      started = bridge ? "bridge" : "yes";
      if (bridge) release?.();
      else if (launch !== undefined || !attaches) attachView();
      else timer = later(attachView, LAUNCH_TIMEOUT);
    },
    setLaunchValue(value) {
      if (started === "bridge" || value === launch) return;
      launch = value;
      if (started === "yes") attachView();
    },
    sign(former) {
      if (started === "bridge") return Promise.resolve(undefined);
      // Several calls are refused at once, and some are told late.
      if (+`${former}`.split(".")[1]! > floor) attachView();
      // One after the other: the numbers are sent in order.
      const signed = line.then(takeProof);
      line = signed.catch(() => undefined);
      return signed;
    },
    isOffered: (name) => !!(free ?? snapshotTools)?.has(name),
    whenSettled: () => settled,
    maxMessageSize: () => view?.maxMessageSize ?? Infinity,
  };
}
