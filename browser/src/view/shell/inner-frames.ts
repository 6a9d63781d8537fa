/** The frames within a page: the shell, or a packed page itself, loads each of them, and passes their messages on. */

import { notification, type Message, type Params } from "../host/json-rpc";
import { loadPage } from "./load";
import { createPeer, type FrameOwner, type Peer } from "./page-frame";
import { matchesSources, readPolicies } from "./page-policy";
import { FRAME, FRAMED, FRAME_PAGE, LEAVE, MOVED, NAVIGATE, type Navigation } from "./protocol";
import { writePage, type InnerConfig } from "./write-page";

/** Frames of one page, as in Chromium at most; and frames in frames. */
const MAX_FRAMES = 1000;
const MAX_DEPTH = 8;

interface InnerFrame {
  url: URL;
  peer: Peer;
  loading?: AbortController;
}

export interface InnerFrames {
  /** A notification of the page: true if it concerns a frame within it. */
  take(method: string, params: Params): boolean;
  /** Tells each frame. */
  notify(method: string, params: Params): void;
  /** Forgets all, with the page. */
  clear(): void;
}

export interface InnerFrameOwner {
  config: InnerConfig;
  cookies(): string;
  header(at: URL, user: boolean): string;
  post(message: unknown, transfer?: Transferable[]): void;
  /** Handles what a page may ask for. */
  request(at: URL, ...given: Parameters<FrameOwner["request"]>): ReturnType<FrameOwner["request"]>;
  hostResult(): Params;
  notification(method: string, params: Params): void;
  takeCookies(text: string | null | undefined): void;
  /** A frame that leads the whole page elsewhere. */
  leadPage(navigation: Navigation, at: URL): Promise<{ why?: string }>;
}

const escapeHtml = (text: string): string => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
const notShown = (url: string, why: string): string => `<!doctype html><p style="font:14px sans-serif">${escapeHtml(`${url} is not shown here: ${why}`)}</p>`;

export function createInnerFrames(owner: InnerFrameOwner): InnerFrames {
  const { config } = owner;
  const frames = new Map<string, InnerFrame>();

  function show(id: string, html: string, url: string): void {
    owner.post(notification(FRAME_PAGE, { frame: id, html, url }));
  }

  async function navigate(id: string, frame: InnerFrame, navigation: Navigation, from: URL, above: string[]): Promise<{ why?: string }> {
    const target = URL.parse(String(navigation.url), from.href);
    if (!target || target.origin !== config.origin) {
      const why = "it is of another site";
      show(id, notShown(navigation.url, why), from.href);
      return { why };
    }
    // HTML, 7.4.2.3: a page is not shown in itself.
    const [address] = target.href.split("#");
    if (above.length > MAX_DEPTH || above.includes(address!)) {
      const why = "the page would contain itself";
      show(id, notShown(target.href, why), target.href);
      return { why };
    }
    frame.loading?.abort();
    const mine = (frame.loading = new AbortController());
    const outcome = await loadPage({ ...navigation, url: target.href }, owner.header(from, !!navigation.user), mine.signal);
    if (mine.signal.aborted || frames.get(id) !== frame) return { why: "another page was asked for" };
    if ("cookies" in outcome) owner.takeCookies(outcome.cookies);
    if ("stays" in outcome) return {};
    if (!("page" in outcome)) {
      const why = "why" in outcome ? outcome.why : "it is a file";
      show(id, notShown(target.href, why), target.href);
      return { why };
    }
    const { page } = outcome;
    const forbidden = readPolicies([page.policy]).some((policy) => policy.has("frame-ancestors") && !matchesSources(page.url, policy.get("frame-ancestors")!, page.url));
    frame.url = page.url;
    frame.peer.end();
    const facts = { referrer: from.href.replace(/#.*/s, ""), cookies: owner.cookies(), above: [...above, address!] };
    show(id, forbidden ? notShown(page.url.href, "its content policy forbids it") : (await writePage(config, page, facts)).html, page.url.href);
    return {};
  }

  function open(id: string, navigation: Navigation, at: URL, above: string[]): void {
    const known = frames.get(id);
    if (known) return void navigate(id, known, navigation, at, above);
    if (frames.size >= MAX_FRAMES) return;
    const made: InnerFrame = {
      url: at,
      peer: createPeer((message, transfer) => owner.post(notification(FRAMED, { frame: id, message }), transfer), {
        hostResult: owner.hostResult,
        envelope: () => undefined,
        request(method, params, respond) {
          if (method !== NAVIGATE) return owner.request(made.url, method, params, respond);
          const navigation = params as unknown as Navigation;
          const done = navigation.whole ? owner.leadPage(navigation, made.url) : navigate(id, made, navigation, made.url, above);
          void done.then(({ why }) => respond({ result: why === undefined ? {} : { why } }), (error: unknown) => respond({ result: { why: String(error) } }));
          return undefined;
        },
        notification(method, params) {
          if (method === MOVED) made.url = URL.parse(String(params["url"])) ?? made.url;
          else if (method === FRAME) takeInner(params, made.url);
          else if (/^webmcp-gateway\/(cookie|framed)$/.test(method)) owner.notification(method, params);
        },
      }),
    };
    frames.set(id, made);
    void navigate(id, made, navigation, at, above);
  }

  function close(id: string): void {
    frames.get(id)?.loading?.abort();
    frames.get(id)?.peer.end();
    frames.delete(id);
  }

  function takeInner(params: Params, at: URL): void {
    const { frame, above, gone, ...navigation } = params;
    if (gone) close(String(frame));
    else open(String(frame), navigation as unknown as Navigation, at, (Array.isArray(above) ? above : []).map(String));
  }

  return {
    take(method, params) {
      if (method === FRAMED) frames.get(String(params["frame"]))?.peer.receive(params["message"] as Message);
      else if (method === FRAME) takeInner(params, URL.parse(String(params["at"])) ?? new URL(config.origin));
      else return false;
      return true;
    },
    notify(method, params) {
      for (const { peer } of frames.values()) if (method !== LEAVE) peer.post(notification(method, params));
    },
    clear() {
      for (const id of [...frames.keys()]) close(id);
    },
  };
}
