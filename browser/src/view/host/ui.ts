/** The ui channel: separates the runtime's messages from the page's, and filters what each may see. */

import type { AppTools } from "../tools/app-tools";
import type { Calls } from "../http/calls";
import { TOOL } from "../http/calls";
import { isEnvelope, type Envelope } from "../tools/envelope";
import type { Handshake } from "./handshake";
import {
  answer, failure, isAnswer, isMessage, isNotification, isRequest, METHOD_NOT_FOUND, objectOf, refusal,
  type Answer, type Message, type Notification, type Request,
} from "./json-rpc";
import type { PageTools } from "../tools/page-tools";
import { LAUNCH, type Proof } from "./proof";
import type { Relay } from "./relay";
import type { Reports } from "./reports";
import type { Requests } from "./requests";
import { HANDLED, type Receivers, type Wire } from "./wire";

export interface Parts {
  appTools: AppTools;
  calls: Calls;
  envelope: Envelope;
  handshake: Handshake;
  pageTools: PageTools;
  proof: Proof;
  relay: Relay;
  reports: Reports;
  requests: Requests;
}

/** `message` without the launch value in the `_meta` of its `holder`, and that value. */
function withoutLaunch<Kind extends Message>(message: Kind, holder: "params" | "result"): { seen: Kind; launch: unknown } {
  const { [LAUNCH]: launch, ..._meta } = objectOf(message[holder]?.["_meta"]);
  return { seen: launch === undefined ? message : { ...message, [holder]: { ...message[holder], _meta } }, launch };
}

export function createUi(wire: Wire, parts: Parts): Receivers {
  const { appTools, calls, envelope, handshake, pageTools, proof, relay, reports, requests } = parts;

  function receiveHostAnswer(message: Answer): unknown {
    if (requests.receive(message)) return HANDLED;
    handshake.receiveAnswer(message);
    const seen = calls.readAnswer(message);
    if (!seen) return HANDLED;
    return withoutLaunch(seen, "result").seen;
  }

  function receiveHostNotification(message: Notification): unknown {
    if (message.method === "notifications/cancelled" && appTools.cancel(message.params?.["requestId"], message.params?.["reason"])) {
      return HANDLED;
    }
    if (requests.receive(message)) return HANDLED;
    const { seen, launch } = withoutLaunch(message, "params");
    if (typeof launch === "string" && message.method === "ui/notifications/tool-result") proof.setLaunchValue(launch);
    // A turn of the model: it has read all reports before.
    if (/^ui\/notifications\/tool-(input|result)$/.test(message.method)) reports.acknowledge();
    handshake.storeNotification(seen);
    return seen;
  }

  /** If the page has its own client, that answers all requests except those about tools, while it exists. */
  function receiveHostRequest(message: Request): unknown {
    if (!handshake.isOpen()) return message;
    if (message.method === "tools/list" || message.method === "tools/call") {
      appTools.receive(message);
      return HANDLED;
    }
    if (message.method === "ui/resource-teardown") relay.close();
    const known = message.method === "ping" || message.method === "ui/resource-teardown";
    const reply = (): void => wire.toHost(known ? answer(message.id, {}) : failure(message.id, METHOD_NOT_FOUND, `Method not found: ${message.method}`));
    if (handshake.pageClients()) {
      pageTools.runIfClosed(reply);
      return message;
    }
    reply();
    return HANDLED;
  }

  function receivePageRequest(message: Request): boolean {
    if (message.method === "ui/initialize") handshake.receiveInitialize(message);
    else if (message.method === "tools/call" && message.params?.["name"] === TOOL) calls.sendFromPage(message);
    else return false;
    return true;
  }

  function receivePageNotification(message: Notification): boolean {
    if (message.method === "ui/notifications/initialized") {
      handshake.receiveInitialized(message);
      pageTools.update();
    } else if (message.method === "notifications/tools/list_changed") pageTools.update();
    else return message.method === "notifications/cancelled" && calls.cancelFromPage(message.params?.["requestId"]);
    return true;
  }

  return {
    fromHost(message, port) {
      if (isEnvelope(message)) {
        envelope.receive(message, port);
        return HANDLED;
      }
      if (!isMessage(message)) return message;
      if (isAnswer(message)) return receiveHostAnswer(message);
      if (isRequest(message)) return receiveHostRequest(message);
      return isNotification(message) ? receiveHostNotification(message) : message;
    },
    fromPage(message) {
      // The webmcp channel has one speaker. A server of the page itself is reached through modelContext.
      if (isEnvelope(message)) return true;
      if (!isMessage(message)) return false;
      const refused = refusal(message);
      if (refused) {
        wire.toPage(refused);
        return true;
      }
      if (isRequest(message)) return receivePageRequest(message);
      if (isNotification(message)) return receivePageNotification(message);
      return isAnswer(message) && pageTools.receive(message);
    },
  };
}
