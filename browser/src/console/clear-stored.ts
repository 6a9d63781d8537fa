/** Deletes what apps stored on origins of their own, at a logout. */

/** Milliseconds after which a logout no longer waits for an origin that does not answer. */
const TIMEOUT = 5000;

/** Loads the URL of one origin in a frame, where the browser obeys `Clear-Site-Data` for the storage of frames in this page. */
export async function clearStored(url: string): Promise<void> {
  const frame = document.createElement("iframe");
  frame.hidden = true;
  frame.src = url;
  const loaded = new Promise((go) => frame.addEventListener("load", go, { once: true }));
  document.body.append(frame);
  await Promise.race([loaded, new Promise((go) => setTimeout(go, TIMEOUT))]);
  frame.remove();
}
