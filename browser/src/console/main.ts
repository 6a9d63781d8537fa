/** Builds the page: the gateway's interfaces, and the element that shows them. */
import { Api } from "./api";
import { ConsoleApp } from "./console-app";
import { LinkDialog } from "./link-dialog";
import { mounter } from "./mount";
import { rootOf } from "./route";
import { Store } from "./store";
import type { GatewayState } from "./types";

const page = document.querySelector("gateway-console");
if (page instanceof ConsoleApp) {
  const api = new Api(rootOf(location));
  const store = new Store(api);
  const links = new LinkDialog();
  document.body.append(links);
  const state = (): GatewayState => store.state as GatewayState;
  const reread = (): void => store.reread();
  page.mount = mounter({ api, state, reread, showApprovals: () => page.showApprovals(), links });
  page.store = store;
}
