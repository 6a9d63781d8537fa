/** The nodes of a gateway of several: leases, versions, what each owns, what differs, which one answered, and the views of all. */
import { css, html, LitElement, nothing, type TemplateResult } from "lit";
import { customElement, property, state } from "lit/decorators.js";
import type { Api } from "./api";
import { visibleLine } from "./format";
import { base, buttons, narrowPage } from "./styles";
import type { GatewayNode, LiveView, Nodes } from "./types";

/** Milliseconds between two readings: a lease is renewed every 2 s. */
const EVERY = 4000;

const OWNED = ["views", "sessions", "streams", "calls", "upstreams"] as const;

@customElement("gateway-nodes")
export class NodesPage extends LitElement {
  static override styles = [
    base,
    buttons,
    narrowPage,
    css`
      main {
        max-width: 1080px;
      }
      .card {
        overflow-x: auto;
      }
      table {
        width: 100%;
        border-collapse: collapse;
        font-size: 13.5px;
      }
      th,
      td {
        padding: 9px 10px;
        text-align: left;
        vertical-align: top;
        border-top: 1px solid var(--line);
      }
      thead th {
        border-top: 0;
        color: var(--muted);
        font-weight: 500;
        white-space: nowrap;
      }
      th[scope="row"] {
        font-weight: 600;
        white-space: nowrap;
      }
      .number {
        text-align: right;
        font-variant-numeric: tabular-nums;
      }
      .ended {
        color: var(--muted);
      }
      .bad {
        color: var(--bad);
      }
      .ok {
        color: var(--ok);
      }
    `,
  ];

  @property({ attribute: false }) api!: Api;
  @property({ attribute: false }) views: readonly LiveView[] = [];

  @state() private found: Nodes | undefined;
  @state() private problem = "";
  private timer: ReturnType<typeof setInterval> | undefined;

  override connectedCallback(): void {
    super.connectedCallback();
    void this.load();
    this.timer = setInterval(() => void this.load(), EVERY);
  }

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    clearInterval(this.timer);
  }

  protected override render(): TemplateResult {
    const { found } = this;
    return html`<main>
      <h1>Nodes of this gateway</h1>
      <p class="bad" role="alert">${this.problem}</p>
      ${found ? this.table(found) : this.problem ? nothing : html`<p role="status" class="muted">Asking the nodes…</p>`}
      ${this.views.length > 0 ? this.viewTable() : nothing}
      <a class="button bare" href="#/">Back to the apps</a>
    </main>`;
  }

  private viewTable(): TemplateResult {
    return html`<h2>Open views</h2>
      <section class="card">
        <table data-testid="views">
          <thead>
            <tr>
              <th scope="col">App</th>
              <th scope="col">Node</th>
              <th scope="col">Opened</th>
              <th scope="col">Tools</th>
              <th scope="col"></th>
            </tr>
          </thead>
          <tbody>
            ${this.views.map((view) => this.viewRow(view))}
          </tbody>
        </table>
      </section>`;
  }

  private viewRow(view: LiveView): TemplateResult {
    const { tools } = view;
    return html`<tr>
      <th scope="row" title=${view.id}>${view.app}</th>
      <td>${view.node ?? ""}</td>
      <td>${new Date(view.opened * 1000).toLocaleTimeString()}</td>
      <td>
        ${tools.length === 0 ? "none" : html`<details><summary>${tools.length}</summary>${tools.map((tool) => html`<p><code>${visibleLine(tool.page_name)}</code> ${visibleLine(tool.description)}</p>`)}</details>`}
      </td>
      <td><button class="button" aria-label="Close the view of ${view.app} at ${view.node ?? "this node"}" @click=${() => void this.close(view)}>Close</button></td>
    </tr>`;
  }

  private async close(view: LiveView): Promise<void> {
    try {
      await this.api.closeView(view.id);
      this.problem = "";
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
    }
  }

  private table({ here, nodes, differing, redis }: Nodes): TemplateResult {
    return html`${differing.map((words) => html`<p class="bad" data-testid="differing">${visibleLine(words)}: nothing is forwarded between them</p>`)}
      ${redis ? nothing : html`<p class="bad">There is no Redis (stores.redis): each node counts rates by itself.</p>`}
      <section class="card">
        <table data-testid="nodes">
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col">State</th>
              <th scope="col" class="number">Renewed</th>
              <th scope="col" class="number">Up</th>
              <th scope="col">Version</th>
              <th scope="col">Configuration</th>
              ${OWNED.map((kind) => html`<th scope="col" class="number">${kind}</th>`)}
              <th scope="col">Reached from here</th>
            </tr>
          </thead>
          <tbody>
            ${nodes.map((node) => row(node, node.incarnation === here))}
          </tbody>
        </table>
      </section>`;
  }

  private async load(): Promise<void> {
    try {
      this.found = await this.api.nodes();
      this.problem = "";
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
    }
  }
}

function row(node: GatewayNode, isHere: boolean): TemplateResult {
  return html`<tr class=${node.state}>
    <th scope="row">${node.name}${isHere ? html` <span class="muted">answered</span>` : nothing}</th>
    <td class=${node.state === "serving" ? "ok" : node.state === "unsigned" ? "bad" : ""}>${node.state}</td>
    <td class="number">${node.renewed.toFixed(1)} s ago</td>
    <td class="number">${duration(node.up)}</td>
    <td>${node.version}</td>
    <td><code title=${node.configuration}>${node.configuration.slice(0, 8)}</code></td>
    ${OWNED.map((kind) => html`<td class="number">${node.owns[kind] ?? ""}</td>`)}
    <td>${isHere ? "" : reach(node)}</td>
  </tr>`;
}

function reach(node: GatewayNode): TemplateResult | typeof nothing {
  if (node.reached === undefined) return nothing;
  if (!node.reached) return html`<span class="bad">no: ${visibleLine(node.detail ?? "")}</span>`;
  const redis = node.redis_problem ? html`, <span class="bad">no Redis: ${visibleLine(node.redis_problem)}</span>` : nothing;
  return html`in ${Math.max(1, Math.round((node.seconds ?? 0) * 1000))} ms${redis}`;
}

/** Returns "4 min" for 250 seconds. */
function duration(seconds: number): string {
  const [size, unit] = seconds < 120 ? [1, "s"] : seconds < 7200 ? [60, "min"] : seconds < 172_800 ? [3600, "h"] : [86_400, "d"];
  return `${Math.floor(seconds / size)} ${unit}`;
}
