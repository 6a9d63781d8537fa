/** The live tools of the shown view. */
import { css, html, LitElement, nothing, type TemplateResult } from "lit";
import { customElement, property } from "lit/decorators.js";
import { repeat } from "lit/directives/repeat.js";
import { icon } from "./icons";
import { base, panel } from "./styles";
import "./tool-card";
import type { CallTool } from "./tool-card";
import type { ViewTool } from "./types";

@customElement("gateway-tools")
export class ToolsPanel extends LitElement {
  static override styles = [
    base,
    panel,
    css`
      gateway-tool + gateway-tool {
        border-top: 1px solid color-mix(in srgb, var(--line) 60%, transparent);
      }
      header .as {
        margin-left: auto;
        color: var(--muted);
        font-size: 13px;
      }
    `,
  ];

  @property({ attribute: false }) tools: readonly ViewTool[] = [];
  @property({ attribute: false }) view: string | undefined;
  @property({ attribute: false }) call!: CallTool;
  @property({ attribute: false }) enabled = true;

  protected override render(): TemplateResult {
    return html`<section class="panel" aria-labelledby="title">
      <header>
        ${icon("tools")}
        <h2 id="title">Tools</h2>
        ${this.tools.length ? html`<span class="count">${this.tools.length}</span>` : nothing}
        <span class="as">called as the model</span>
      </header>
      <div class="body" tabindex="0" role="region" aria-label="Tools of the page">
        ${this.tools.length ? this.list() : this.empty()}
      </div>
    </section>`;
  }

  private list(): unknown {
    return repeat(
      this.tools,
      (tool) => `${this.view} ${tool.page_name}`,
      (tool) => html`<gateway-tool .tool=${tool} .call=${this.call} .enabled=${this.enabled}></gateway-tool>`,
    );
  }

  private empty(): TemplateResult {
    const [heading, words] = this.view
      ? [
          "No tools yet",
          "The page has not registered any with document.modelContext, or the policy names none of them.",
        ]
      : ["No view", "Once the app is open, the tools that its page registers stand here."];
    return html`<div class="empty"><strong>${heading}</strong><span>${words}</span></div>`;
  }
}
