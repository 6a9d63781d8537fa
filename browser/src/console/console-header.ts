/** The header of the page: the product's name, the app picker, the user, and the state of the connection. */
import { css, html, LitElement, nothing, svg, type TemplateResult } from "lit";
import { customElement, property } from "lit/decorators.js";
import { base, buttons } from "./styles";
import { adviceHash, NODES_HASH } from "./route";
import type { Connection, GatewayState } from "./types";

const LINKS: Record<Connection, string> = { connecting: "Connecting…", open: "Connected", lost: "Reconnecting…" };

@customElement("gateway-header")
export class ConsoleHeader extends LitElement {
  static override styles = [
    base,
    buttons,
    css`
      header {
        display: flex;
        align-items: center;
        flex-wrap: wrap;
        gap: 8px 14px;
        min-height: 56px;
        padding: 8px 20px;
      }
      .brand {
        display: flex;
        align-items: center;
        gap: 10px;
        color: inherit;
        font-size: 15px;
        font-weight: 650;
        letter-spacing: -0.015em;
        text-decoration: none;
        border-radius: 8px;
      }
      .brand svg {
        flex: none;
        width: 28px;
        height: 28px;
      }
      label,
      .app {
        display: flex;
        align-items: center;
        gap: 8px;
        padding-left: 14px;
        border-left: 1px solid var(--line-strong);
        color: var(--muted);
      }
      select {
        min-height: 32px;
        padding: 4px 8px;
        border: 1px solid var(--line-strong);
        border-radius: 8px;
        background: var(--surface);
        color: var(--text);
        font: 550 13.5px/1.2 var(--sans);
      }
      .one {
        color: var(--text);
        font-weight: 550;
      }
      .right {
        display: flex;
        align-items: center;
        gap: 14px;
        margin-left: auto;
        color: var(--muted);
        font-size: 13px;
      }
      .link {
        display: inline-flex;
        align-items: center;
        gap: 7px;
        padding: 3px 11px 3px 9px;
        border: 1px solid var(--line);
        border-radius: 20px;
        background: var(--surface);
        color: var(--text);
        font-weight: 500;
        white-space: nowrap;
      }
      .link::before {
        content: "";
        width: 8px;
        height: 8px;
        border-radius: 50%;
        background: var(--warn);
      }
      .link.open::before {
        background: var(--ok);
      }
      .link.lost::before {
        background: var(--bad);
        animation: breathe 1.4s ease-in-out infinite;
      }
      @keyframes breathe {
        50% {
          opacity: 0.3;
        }
      }
      @media (max-width: 480px) {
        .link.open {
          gap: 0;
          padding: 6px;
          font-size: 0;
        }
      }
      @media (max-width: 359px) {
        .brand:has(+ .app) span,
        .brand:has(+ label) span {
          display: none;
        }
      }
      @media (max-width: 720px) {
        header {
          gap: 8px 10px;
          padding: 8px 14px;
        }
        .word {
          display: none;
        }
        label,
        .app {
          padding-left: 10px;
        }
        .who {
          display: none;
        }
      }
    `,
  ];

  @property({ attribute: false }) gateway: GatewayState | undefined;
  @property({ attribute: false }) app: string | undefined;
  @property({ attribute: false }) link: Connection = "connecting";
  @property({ attribute: false }) problem = "";

  protected override render(): TemplateResult {
    const { gateway, link } = this;
    return html`<header>
      <a class="brand" href="#/" aria-label="webmcp-gateway" title=${gateway ? `Version ${gateway.version}` : ""}
        >${LOGO}<span>webmcp-gateway</span></a
      >
      ${gateway && this.app ? this.picker(gateway) : nothing}
      <div class="right">
        ${gateway?.checks && this.app ? html`<a class="who" data-testid="check" href=${adviceHash(this.app)}>Check</a>` : nothing}
        ${gateway?.nodes ? html`<a class="who" data-testid="to-nodes" href=${NODES_HASH}>Nodes</a>` : nothing}
        ${gateway?.accounts ? html`<a class="who" href="#/connections">Accounts</a>` : nothing}
        ${gateway ? html`<span class="who">${whoWords(gateway)}</span>` : nothing}
        ${gateway?.may.logout ? html`<button data-testid="logout" @click=${this.leave}>Log out</button>` : nothing}
        <span class="link ${link}" role="status" data-testid="connection" data-state=${link} title=${this.problem}
          >${LINKS[link]}</span
        >
      </div>
    </header>`;
  }

  private picker({ apps }: GatewayState): TemplateResult {
    if (apps.length < 2)
      return html`<span class="app"><span class="word">App</span> <span class="one">${apps[0]?.title}</span></span>`;
    return html`<label
      ><span class="word">App</span>
      <select
        aria-label="App"
        data-testid="app-picker"
        @change=${(event: Event) => this.pick((event.target as HTMLSelectElement).value)}
      >
        ${apps.map((app) => html`<option value=${app.id} ?selected=${app.id === this.app}>${app.title}</option>`)}
      </select></label
    >`;
  }

  private leave(): void {
    this.dispatchEvent(new Event("leave"));
  }

  private pick(app: string): void {
    this.dispatchEvent(new CustomEvent<string>("pick", { detail: app }));
  }
}

const LOGO = svg`<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="9" fill="#4050d8"/><path
  d="M8 22v-7a8 8 0 0 1 16 0v7M13 22v-6.5a3 3 0 0 1 6 0V22" fill="none" stroke="#fff" stroke-width="2.6" stroke-linecap="round"/></svg>`;

function whoWords({ loopback, principal }: GatewayState): string {
  return loopback ? "On this machine only, no login" : `Signed in as ${principal.name}`;
}
