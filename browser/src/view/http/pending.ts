/** Polls an answer that waits for a person's approval, until it is the final one. */

import { objectOf, type Params } from "../host/json-rpc";
import { answerOf } from "../tools/results";

export interface Approval {
  id: string;
  message: string;
  url: string;
}

/** The minimum pause between polls, for a host that answers a long poll at once, in milliseconds. */
const PAUSE = 500;

export function approvalOf(result: Params): Approval | undefined {
  if (result["isError"]) return undefined;
  const given = answerOf(result);
  const id = objectOf(given?.["headers"])["gateway-pending"];
  if (given?.["status"] !== 202 || typeof id !== "string") return undefined;
  const { message, url } = objectOf(given["body"]);
  return { id, message: String(message ?? ""), url: String(url ?? "") };
}

export interface PendingDependencies {
  stream(params: Params, signal?: AbortSignal): Promise<Params>;
  /** Shows that `approval` waits; the returned function hides that. */
  notice(approval: Approval): () => void;
  later(run: () => void, milliseconds: number): number;
}

/** `result`, or the final one once a person has answered. An abort cancels the request. */
export async function awaitFinalResult(result: Params, { stream, notice, later }: PendingDependencies, signal?: AbortSignal): Promise<Params> {
  let approval = approvalOf(result);
  if (!approval) return result;
  const hide = notice(approval);
  const { id } = approval;
  try {
    for (let next = result; ; next = await stream({ id: approval.id }, signal)) {
      signal?.throwIfAborted();
      approval = approvalOf(next);
      if (!approval) return next;
      await new Promise<void>((resolve) => later(resolve, next === result ? 0 : PAUSE));
    }
  } catch (error) {
    if (signal?.aborted) stream({ id, cancel: true }).catch(() => undefined);
    throw error;
  } finally {
    hide();
  }
}
