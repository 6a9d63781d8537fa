/** The app in its sandboxed frame, with the toolbar above it. */
import { css, html, LitElement, nothing, type PropertyValues, type TemplateResult } from "lit";
import { customElement, property, query, state } from "lit/decorators.js";
import { icon } from "./icons";
import { base, buttons } from "./styles";
import type { AppInfo } from "./types";

/** A shown view; `view` is its handle, which a reload changes. */
export interface Mounted {
  readonly view: string;
  reload(): Promise<void>;
  close(): void;
}

export interface MountOptions {
  container: HTMLElement;
  app: AppInfo;
  /** The view was opened, with this handle. */
  onOpen(view: string): void;
  /** The view ended without being closed here. */
  onLost(reason: string): void;
  /** The content security policy blocked a feature that the configuration of the app's MCP server can permit. */
  onBlocked(what: string): void;
}

export type Mount = (options: MountOptions) => Promise<Mounted>;

/** `why` is set if the person did not close the view. */
type Phase = { is: "opening" | "open" } | { is: "closed"; why?: string } | { is: "failed"; problem: string };

@customElement("gateway-frame")
export class AppFrame extends LitElement {
  static override styles = [
    base,
    buttons,
    css`
      :host {
        display: flex;
        flex-direction: column;
        min-height: 0;
      }
      .toolbar {
        position: relative;
        display: flex;
        align-items: center;
        gap: 2px;
        z-index: 1;
        min-height: 46px;
        padding: 6px 8px 6px 16px;
        border-bottom: 1px solid var(--line);
      }
      .title {
        font-weight: 600;
        white-space: nowrap;
        overflow: hidden;
        text-overflow: ellipsis;
      }
      .gap {
        flex: 1;
      }
      .handle {
        flex: none;
        color: var(--muted);
        font-size: 12px;
      }
      .handle summary {
        display: grid;
        place-content: center;
        width: 28px;
        height: 28px;
        border-radius: 8px;
        cursor: pointer;
        list-style: none;
      }
      .handle summary::-webkit-details-marker {
        display: none;
      }
      .handle summary:hover,
      .handle[open] summary {
        background: var(--raised);
        color: var(--text);
      }
      .handle p {
        position: absolute;
        top: calc(100% - 4px);
        left: 12px;
        padding: 6px 10px;
        border: 1px solid var(--line);
        border-radius: 8px;
        background: var(--surface);
        box-shadow: var(--shadow);
        white-space: nowrap;
      }
      .handle code {
        user-select: all;
      }
      .toolbar button,
      .toolbar a {
        min-width: 32px;
      }
      .blocked {
        padding: 8px 16px;
        border-bottom: 1px solid var(--line);
        background: var(--raised);
      }
      .stage {
        position: relative;
        flex: 1;
        min-height: 0;
        background: var(--sunken);
      }
      .frame {
        position: absolute;
        inset: 0;
      }
      .frame[inert] {
        visibility: hidden;
      }
      .frame iframe {
        display: block;
        width: 100%;
        height: 100%;
        border: 0;
        background: Canvas; /* A page without a ground of its own has this one in a browser. */
      }
      .cover {
        position: absolute;
        inset: 0;
        display: grid;
        place-content: center;
        justify-items: center;
        gap: 10px;
        padding: 24px;
        background: var(--sunken);
        text-align: center;
      }
      .cover p {
        max-width: 46ch;
        color: var(--muted);
        text-wrap: balance;
      }
      .spinner {
        width: 26px;
        height: 26px;
        border: 2.5px solid var(--line-strong);
        border-top-color: var(--accent);
        border-radius: 50%;
        animation: turn 0.9s linear infinite;
      }
      @keyframes turn {
        to {
          transform: rotate(360deg);
        }
      }
    `,
  ];

  @property({ attribute: false }) app!: AppInfo;
  /** Whether a changed app is shown at once. */
  @property({ type: Boolean }) live = false;
  @property({ attribute: false }) mount: Mount | undefined;

  @state() private phase: Phase = { is: "opening" };
  @state() private view = "";
  @state() private blocked: ReadonlySet<string> = new Set();

  @query(".frame") private container!: HTMLElement;
  private mounted: Mounted | undefined;
  /** Counts openings, so that a late answer of an earlier one is dropped. */
  private turn = 0;

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.endView("opening");
  }

  protected override updated(changed: PropertyValues): void {
    const before = changed.get("app") as AppInfo | undefined;
    if (changed.has("mount") || (changed.has("app") && before?.id !== this.app.id)) void this.openView();
    else if (this.live && before && before.resource !== this.app.resource) void this.reload();
  }

  protected override render(): TemplateResult {
    const open = this.phase.is === "open";
    return html`<div class="toolbar" role="group" aria-label="View">
        <span class="title">${this.app.title}</span>
        ${open ? this.handle() : nothing}
        <span class="gap"></span>
        <button
          class="bare"
          data-testid="reload"
          title="Reload the view"
          aria-label="Reload the view"
          ?disabled=${this.phase.is === "opening"}
          @click=${() => void this.reload()}
        >
          ${icon("reload")}
        </button>
        ${this.app.site === null ? nothing : this.siteLink(this.app.site)}
        <button
          class="bare"
          data-testid="close"
          title="Close the view"
          aria-label="Close the view"
          ?disabled=${!open}
          @click=${() => this.endView("closed")}
        >
          ${icon("cross")}
        </button>
      </div>
      ${this.blocked.size ? this.blockedNotice([...this.blocked].join(", ")) : nothing}
      <div class="stage">
        <div
          class="frame"
          data-testid="app-frame"
          ?inert=${this.phase.is === "closed" || this.phase.is === "failed"}
        ></div>
        ${this.cover()}
      </div>`;
  }

  private blockedNotice(words: string): TemplateResult {
    return html`<p class="blocked" role="status" data-testid="blocked">
      The content security policy kept this app from something that it tried. If it may, write
      <code>allow: [${words}]</code> at <code>upstreams.${this.app.upstream}</code> in gateway.yaml.
    </p>`;
  }

  private siteLink(site: string): TemplateResult {
    return html`<a
      class="button bare"
      href=${site}
      target="_blank"
      rel="noopener noreferrer"
      title="Open as a web site"
      aria-label="Open as a web site"
      >${icon("open")}</a
    >`;
  }

  /** The view's handle is needed only to find it in the record or to name it to a model. */
  private handle(): TemplateResult {
    return html`<details class="handle">
      <summary title="View ${this.view}" aria-label="Handle of the view">${icon("info")}</summary>
      <p>View <code data-testid="view">${this.view}</code></p>
    </details>`;
  }

  private cover(): TemplateResult | typeof nothing {
    const { phase } = this;
    const again = (word: string): TemplateResult =>
      html`<button @click=${() => void this.openView()}>${icon("reload")} ${word}</button>`;
    switch (phase.is) {
      case "open":
        return nothing;
      case "opening":
        return html`<div class="cover" role="status">
          <span class="spinner"></span>
          <p>Opening ${this.app.title}…</p>
        </div>`;
      case "closed":
        return html`<div class="cover" role=${phase.why ? "alert" : nothing}>
          <strong>The view is closed</strong>
          ${phase.why ? html`<p>${phase.why}</p>` : nothing}
          <p>Its tools are gone with it.</p>
          ${again("Open again")}
        </div>`;
      case "failed":
        return html`<div class="cover" role="alert">
          <strong>${this.app.title} cannot be shown</strong>
          <p>${phase.problem}</p>
          ${again("Try again")}
        </div>`;
    }
  }

  private async openView(): Promise<void> {
    this.endView("opening");
    this.blocked = new Set();
    const turn = this.turn;
    const mine = (): boolean => turn === this.turn;
    if (!this.mount) return;
    try {
      const mounted = await this.mount({
        container: this.container,
        app: this.app,
        onOpen: (view) => mine() && this.show(view),
        onLost: (why) => mine() && this.endView("closed", why),
        onBlocked: (what) => mine() && !this.blocked.has(what) && (this.blocked = new Set([...this.blocked, what])),
      });
      if (!mine()) return mounted.close();
      this.mounted = mounted;
      this.show(mounted.view);
    } catch (error) {
      if (mine()) this.fail(error instanceof Error ? error.message : String(error));
    }
  }

  private async reload(): Promise<void> {
    if (!this.mounted) return this.openView();
    try {
      await this.mounted.reload();
      if (this.mounted) this.show(this.mounted.view);
    } catch (error) {
      this.fail(error instanceof Error ? error.message : String(error));
    }
  }

  private endView(is: "opening" | "closed", why?: string): void {
    this.turn++;
    this.mounted?.close();
    this.mounted = undefined;
    this.phase = is === "closed" && why !== undefined ? { is, why } : { is };
    this.announceView("");
  }

  private show(view: string): void {
    this.phase = { is: "open" };
    this.announceView(view);
  }

  private fail(problem: string): void {
    this.endView("closed");
    this.phase = { is: "failed", problem };
  }

  private announceView(view: string): void {
    if (view === this.view) return;
    this.view = view;
    this.dispatchEvent(new CustomEvent<string>("view", { detail: view }));
  }
}
