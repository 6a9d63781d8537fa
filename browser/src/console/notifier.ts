/** Desktop notifications of questions, for a person who looks elsewhere; a notification never answers anything. */
import { visibleLine } from "./format";
import type { Question } from "./types";

export type Permission = "default" | "granted" | "denied" | "none";

export class Notifier {
  private readonly shown = new Map<string, Notification>();

  /** Whether the person lets this page notify; `none` where the browser has no notifications. */
  get permission(): Permission {
    return "Notification" in globalThis ? Notification.permission : "none";
  }

  /** Ask the person; only a click may lead here. */
  async ask(): Promise<Permission> {
    return "Notification" in globalThis ? Notification.requestPermission() : "none";
  }

  /** Notify of what is new while the page is not looked at, and take back what is over. */
  follow(questions: readonly Question[], fresh: readonly Question[], open: (id: string) => void): void {
    const waiting = new Set(questions.map((question) => question.id));
    for (const [id, notification] of this.shown) {
      if (waiting.has(id)) continue;
      notification.close();
      this.shown.delete(id);
    }
    // To read the permission, this page waits for another process.
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
