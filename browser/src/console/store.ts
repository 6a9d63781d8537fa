/** The page's state of the gateway, kept up to date by the event stream; components are notified by `change`. */
import { clearStored } from "./clear-stored";
import { Api, ApiError } from "./api";
import { follow, type Listener } from "./events";
import { withLine } from "./timeline";
import type { Answer, AppInfo, Connection, GatewayState, Grant, Line, LiveView, Problem, Question } from "./types";

/** Milliseconds after which the state is requested again. */
const RETRY = 2000;
/** Milliseconds until a change is shown, and between two successive ones: the apps of this page need time, too. */
const NOTIFY_DELAY = 40;
const HIDDEN_NOTIFY_DELAY = 300;

export class Store extends EventTarget implements Listener {
  readonly api: Api;
  state: GatewayState | undefined;
  link: Connection = "connecting";
  /** The reason for a missing connection, in words. */
  problem = "";
  questions: readonly Question[] = [];
  liveViews: readonly LiveView[] = [];
  /** The grants. */
  currentGrants: readonly Grant[] = [];
  lines: readonly Line[] = [];
  /** The problems of the configuration. */
  notices: readonly Problem[] = [];
  /** Whether the lists of questions and of the record were received once. */
  asked = false;
  private leaving = false;
  /** Counts the requests for the state: an answer that a later request supersedes may be outdated. */
  private loads = 0;
  private notifyTimer = 0;
  private lastNotified = -Infinity;

  constructor(api: Api) {
    super();
    this.api = api;
  }

  /** Follow the gateway until `signal` aborts. */
  run(signal: AbortSignal): Promise<void> {
    return follow(this.api.url("api/events"), this, signal);
  }

  answer(approval: string, answer: Answer, grant: boolean): Promise<void> {
    return this.api.answer(approval, answer, grant);
  }

  connection(link: Connection, detail: string): void {
    // A restarted gateway has another CSRF token, and maybe other apps.
    if (link === "open") this.reread();
    else this.set(link, detail);
  }

  onUnknown(): void {
    if (!this.leaving) location.assign(this.api.loginUrl(location));
  }

  /** End the login, and navigate to the result; the stream may report the end first, which must not start a new login. */
  async leave(): Promise<void> {
    this.leaving = true;
    try {
      const { to, clear } = await this.api.logout();
      await Promise.all(clear.map(clearStored));
      location.assign(to);
    } catch {
      location.reload(); // the page then shows the actual state
    }
  }

  approvals(questions: Question[]): void {
    this.questions = questions;
    this.asked = true;
    this.dispatchEvent(new Event("change"));
  }

  views(views: LiveView[]): void {
    this.liveViews = views;
    this.scheduleNotify();
  }

  grants(grants: Grant[]): void {
    this.currentGrants = grants;
    this.scheduleNotify();
  }

  problems(problems: Problem[]): void {
    this.notices = problems;
    this.scheduleNotify();
  }

  apps(apps: AppInfo[]): void {
    this.reread(); // the rights of this person may be others, too; and a state that is still on its way is of before
    if (!this.state) return;
    const state = { ...this.state, apps };
    // The bridge serves the apps that it was opened for.
    if (identity(state) !== identity(this.state)) return location.reload();
    this.state = state;
    this.scheduleNotify();
  }

  record(line: Line): void {
    this.lines = withLine(this.lines, line);
    this.scheduleNotify();
  }

  /** Request the state anew: what this page knows may be outdated. */
  reread(): void {
    void this.load();
  }

  private async load(): Promise<void> {
    const number = (this.loads += 1);
    try {
      const state = await this.api.state();
      if (number !== this.loads) return;
      // Another version has another page, and the bridge serves the apps that it was opened for.
      if (this.state && identity(state) !== identity(this.state)) return location.reload();
      this.state = state;
      this.set("open", "");
    } catch (error) {
      if (number !== this.loads) return;
      this.set("lost", error instanceof ApiError ? error.message : String(error));
      setTimeout(() => this.link === "lost" && this.reread(), RETRY);
    }
  }

  private set(link: Connection, problem: string): void {
    this.link = link;
    this.problem = problem;
    this.dispatchEvent(new Event("change"));
  }

  /** Many lines at once are one change. */
  private scheduleNotify(): void {
    const wait = Math.max(NOTIFY_DELAY, this.lastNotified + HIDDEN_NOTIFY_DELAY - performance.now());
    this.notifyTimer ||= window.setTimeout(() => {
      this.notifyTimer = 0;
      this.lastNotified = performance.now();
      this.dispatchEvent(new Event("change"));
    }, wait);
  }
}

function identity({ version, apps }: GatewayState): string {
  return JSON.stringify([version, apps.map((app) => app.id)]);
}
