/** Shows an app with the host parts: the bridge to the gateway, and a sandboxed frame for each view. */
import { connectBridge, mountApp, type Bridge, type MountedApp } from "../host";
import { gatewayHttp } from "../host/gateway-http";
import type { Api } from "./api";
import type { Mount, Mounted, MountOptions } from "./app-frame";
import { parseRoute } from "./route";
import type { GatewayState } from "./types";

export interface MountContext {
  api: Api;
  state: () => GatewayState;
  /** The app wants an approval to be seen, which stands on this page already. */
  showApprovals: () => void;
}

/** How this page shows apps; one bridge, opened with the first of them, carries all. */
export function mounter(context: MountContext): Mount {
  let bridge: Bridge | undefined;
  return async (options) => {
    bridge ??= bridgeOf(context);
    return show(options, bridge, context);
  };
}

function bridgeOf({ api, state }: MountContext): Bridge {
  const base = new URL(api.root);
  // The CSRF token is asked for at each call: a gateway that was started again has another.
  const http = () => gatewayHttp(base, api.csrf);
  return connectBridge({
    apps: state().apps.map((app) => app.id),
    csrf: api.csrf,
    base,
    http: {
      ticket: (apps) => http().ticket(apps),
      putBody: (id, text, signal) => http().putBody(id, text, signal),
      takeBody: (id) => http().takeBody(id),
    },
  });
}

async function show(options: MountOptions, bridge: Bridge, context: MountContext): Promise<Mounted> {
  const { container, app } = options;
  container.replaceChildren();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const themed = (): void => mounted?.setHostContext(hostContext(dark.matches));
  let mounted: MountedApp | undefined;
  dark.addEventListener("change", themed);
  try {
    mounted = await mountApp({
      container,
      bridge,
      app: app.id,
      sandboxUrl: app.sandbox_url,
      hostInfo: { name: "webmcp-gateway", version: context.state().version },
      hostContext: hostContext(dark.matches),
      onview: options.opened,
      // The frame fills its place, whatever height the page asks for.
      onsizechange: () => {},
      onopenlink: (url) => openLink(url, context),
      onlog: ({ level, data }) => console.debug(`${app.id} (${level}):`, data),
      onended: ({ text }) => {
        dark.removeEventListener("change", themed);
        if (mounted && text) options.lost(text);
      },
    });
  } catch (error) {
    dark.removeEventListener("change", themed);
    throw error;
  }
  const view = mounted;
  return {
    get view() {
      return view.view;
    },
    reload: () => view.reload(),
    close: () => void view.close(),
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

/** Only after a click: a page may not open windows by itself. */
function openLink(url: URL, { api, showApprovals }: MountContext): boolean {
  if (url.origin === new URL(api.root).origin) {
    if (parseRoute(url).page === "approval") showApprovals();
    return parseRoute(url).page === "approval";
  }
  if (!navigator.userActivation.isActive) return false;
  window.open(url.href, "_blank", "noopener,noreferrer");
  return true;
}
