/** Shows an app with the host parts: the bridge to the gateway, and a sandboxed frame for each view. */
import { connectBridge, mountApp, type Bridge, type MountedApp } from "../host";
import { saveFile } from "../host/files";
import { gatewayHttp, GatewayRefusal } from "../host/gateway-http";
import type { Api } from "./api";
import type { Mount, Mounted, MountOptions } from "./app-frame";
import type { LinkDialog } from "./link-dialog";
import { fileSaver } from "./downloads";
import { linkOpener } from "./links";
import { parseRoute } from "./route";
import type { GatewayState } from "./types";

export interface MountContext {
  api: Api;
  state: () => GatewayState;
  /** The gateway refused what this page knows of it: its apps or the CSRF token. */
  reread: () => void;
  /** The app wants to show an approval, which is on this page already. */
  showApprovals: () => void;
  /** Asks the person about links. */
  links: LinkDialog;
}

/** Mounts apps on this page; one bridge, opened with the first of them, carries all. */
export function mounter(context: MountContext): Mount {
  let bridge: Bridge | undefined;
  return async (options) => {
    bridge ??= bridgeOf(context);
    return show(options, bridge, context);
  };
}

function bridgeOf({ api, state, reread }: MountContext): Bridge {
  const base = new URL(api.root);
  // The current CSRF token is read at each call: a restarted gateway has another.
  const http = () => gatewayHttp(base, api.csrf);
  return connectBridge({
    apps: state().apps.map((app) => app.id),
    csrf: api.csrf,
    base,
    http: {
      async ticket(apps) {
        try {
          return await http().ticket(apps);
        } catch (error) {
          if (error instanceof GatewayRefusal) reread();
          throw error;
        }
      },
      putBody: (id, text, signal) => http().putBody(id, text, signal),
      takeBody: (id) => http().takeBody(id),
      putBytes: (...given) => http().putBytes(...given),
      takeBytes: (id) => http().takeBytes(id),
    },
  });
}

async function show(options: MountOptions, bridge: Bridge, context: MountContext): Promise<Mounted> {
  const { container, app } = options;
  container.replaceChildren();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let current = "";
  const closing = new AbortController();
  const { signal } = closing;
  const openOutside = outsideOpener(() => current, signal, context);
  const saveFiles = downloadSaver(() => current, signal, context);
  const updateTheme = (): void => mounted?.setHostContext(hostContext(dark.matches));
  let mounted: MountedApp | undefined;
  dark.addEventListener("change", updateTheme, { signal });
  try {
    mounted = await mountApp({
      container,
      bridge,
      app: app.id,
      sandboxUrl: app.sandbox_url,
      hostInfo: { name: "webmcp-gateway", version: context.state().version },
      hostContext: hostContext(dark.matches),
      // Beside the app are its approvals, and a toast while they are out of sight.
      showsApprovals: context.state().asks,
      onview: (view) => {
        current = view;
        options.onOpen(view);
      },
      // The frame fills its container, whatever height the page requests.
      onsizechange: () => {},
      onopenlink: (url) => openLink(url, openOutside, context),
      ondownloadfile: ({ contents }) => saveFiles(contents),
      onlog: ({ level, data }) => console.debug(`${app.id} (${level}):`, data),
      onblocked: (what) => options.onBlocked(what),
      onended: ({ text }) => {
        closing.abort();
        if (mounted && text) options.onLost(text);
      },
    });
  } catch (error) {
    closing.abort();
    throw error;
  }
  const view = mounted;
  return {
    get view() {
      return view.view;
    },
    reload: () => view.reload(),
    close: () => {
      closing.abort();
      void view.close();
    },
  };
}

function hostContext(dark: boolean) {
  return {
    theme: dark ? "dark" : "light",
    locale: navigator.language,
    platform: "web",
    displayMode: "inline",
  } as const;
}

/** The gateway's own approvals are shown here; for all other URLs the app's policy decides. */
function openLink(url: URL, openOutside: (url: string) => Promise<boolean>, context: MountContext): boolean | Promise<boolean> {
  if (url.origin !== new URL(context.api.root).origin) return openOutside(url.href);
  const isApproval = parseRoute(url).page === "approval";
  if (isApproval) context.showApprovals();
  return isApproval;
}

function downloadSaver(view: () => string, closed: AbortSignal, { api, links }: MountContext): ReturnType<typeof fileSaver> {
  return fileSaver({
    isActive: () => navigator.userActivation.isActive,
    ask: (message, names) => links.ask(message, names, closed, { does: "Save", then: "It is saved as a download." }),
    closed,
    record: (files, answered) => api.download(view(), files, answered),
    refuse: (words) => links.refuse(words),
    save: saveFile,
  });
}

function outsideOpener(view: () => string, closed: AbortSignal, { api, links }: MountContext): (url: string) => Promise<boolean> {
  return linkOpener({
    isActive: () => navigator.userActivation.isActive,
    decide: (url, answered) => api.link(view(), url, answered),
    ask: (message, url) => links.ask(message, url, closed),
    closed,
    refuse: (words) => links.refuse(words),
    open: (url) => void window.open(url, "_blank", "noopener,noreferrer"),
  });
}
