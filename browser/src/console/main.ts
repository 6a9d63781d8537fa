/** Builds the page: the gateway's interfaces, and the element that shows them. */
import { Api } from "./api";
import { ConsoleApp } from "./console-app";
import { mounter } from "./mount";
import { rootOf } from "./route";
import { Store } from "./store";
import type { GatewayState } from "./types";

const page = document.querySelector("gateway-console");
if (page instanceof ConsoleApp) {
  const api = new Api(rootOf(location));
  const store = new Store(api);
  page.mount = mounter({ api, state: () => store.state as GatewayState, showApprovals: () => page.showApprovals() });
  page.store = store;
}
