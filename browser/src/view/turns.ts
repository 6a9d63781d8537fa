/** Tasks of the event loop that are not throttled in the background. */

/** Returns a function whose promise resolves in the next task. */
export function createTurns(): () => Promise<unknown> {
  const { port1, port2 } = new MessageChannel();
  const waiting: ((value?: unknown) => void)[] = [];
  port1.onmessage = () => waiting.shift()?.();
  return () =>
    new Promise((go) => {
      waiting.push(go);
      port2.postMessage(0);
    });
}
