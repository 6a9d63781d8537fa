/** Desktop notifications of questions, for a person who looks elsewhere; a notification never answers anything. */
import { visibleLine } from "./format";
import type { Question } from "./types";

export type Permission = "default" | "granted" | "denied" | "none";

export class Notifier {
  private readonly shown = new Map<string, Notification>();

  /** Whether the person permits notifications; `none` if the browser has none. */
  get permission(): Permission {
    return "Notification" in globalThis ? Notification.permission : "none";
  }

  /** Ask the person; may be called only from a click. */
  async requestPermission(): Promise<Permission> {
    return "Notification" in globalThis ? Notification.requestPermission() : "none";
  }

  /** Notify of new questions while the page is not focused, and close notifications of ended ones. */
  follow(questions: readonly Question[], fresh: readonly Question[], open: (id: string) => void): void {
    const waiting = new Set(questions.map((question) => question.id));
    for (const [id, notification] of this.shown) {
      if (waiting.has(id)) continue;
      notification.close();
      this.shown.delete(id);
    }
    // Reading the permission is a synchronous call to another process.
    if (!fresh.length || this.permission !== "granted" || document.hasFocus()) return;
    for (const { id, message } of fresh) {
      const notification = new Notification("Approval needed", { body: visibleLine(message), tag: id });
      notification.onclick = () => {
        window.focus();
        open(id);
      };
      this.shown.set(id, notification);
    }
  }
}
