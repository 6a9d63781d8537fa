/** One live tool of a view: its description, a form to call it as the model, and the answer. */
import { css, html, LitElement, nothing, type PropertyValues, type TemplateResult } from "lit";
import { customElement, property, state } from "lit/decorators.js";
import { fieldTemplate } from "./field";
import { duration, visible } from "./format";
import { icon } from "./icons";
import { pretty } from "./json";
import type { ToolResult } from "./model";
import { fieldsOf, initialValues, toArguments, type Field, type Values } from "./schema-form";
import { base, buttons, chips } from "./styles";
import type { JsonObject, ViewTool } from "./types";

export type CallTool = (tool: ViewTool, args: JsonObject, signal: AbortSignal) => Promise<ToolResult>;

type Outcome = { ok: boolean; text: string; took: number };

@customElement("gateway-tool")
export class ToolCard extends LitElement {
  static override styles = [
    base,
    buttons,
    chips,
    css`
      .head {
        display: flex;
        align-items: center;
        gap: 8px;
        padding: 7px 12px 7px 8px;
      }
      button.toggle {
        flex: 1;
        justify-content: flex-start;
        min-width: 0;
        gap: 8px;
        color: var(--text);
        text-align: left;
      }
      .toggle .icon {
        color: var(--muted);
        transition: transform 0.12s;
      }
      .open .toggle > .icon {
        transform: rotate(90deg);
      }
      .name {
        display: grid;
        min-width: 0;
        gap: 1px;
      }
      .name span {
        overflow: hidden;
        font-weight: 400;
        font-size: 12.5px;
        text-overflow: ellipsis;
        white-space: nowrap;
      }
      .open .name span {
        white-space: pre-wrap;
        overflow-wrap: anywhere;
      }
      .name code {
        font-weight: 600;
        font-size: 13px;
      }
      .call {
        min-width: 68px;
      }
      form {
        display: grid;
        gap: 12px;
        padding: 4px 16px 14px 40px;
      }
      .description {
        white-space: pre-wrap;
        overflow-wrap: anywhere;
      }
      .field {
        display: grid;
        gap: 4px;
      }
      label {
        font-weight: 550;
        font-size: 13px;
      }
      .required {
        color: var(--bad);
        margin-left: 2px;
      }
      .hint {
        margin-left: 6px;
        font-weight: 400;
        font-size: 12px;
      }
      .words {
        font-size: 12.5px;
      }
      .error {
        color: var(--bad);
        font-size: 12.5px;
      }
      input,
      select,
      textarea {
        width: 100%;
        min-height: 34px;
        padding: 6px 10px;
        border: 1px solid var(--line-strong);
        border-radius: 8px;
        background: var(--surface);
        color: var(--text);
        font: 13.5px/1.4 var(--sans);
      }
      textarea {
        resize: vertical;
      }
      .mono {
        font-family: var(--mono);
      }
      [aria-invalid="true"] {
        border-color: var(--bad);
      }
      .result {
        margin: 0 16px 12px 40px;
        border: 1px solid var(--line);
        border-radius: 9px;
        background: var(--sunken);
        overflow: hidden;
      }
      .result p {
        display: flex;
        align-items: center;
        gap: 8px;
        padding: 6px 6px 0 10px;
        font-size: 12.5px;
      }
      .result button {
        margin-left: auto;
        min-height: 24px;
        padding: 2px 6px;
      }
      .result pre {
        max-height: 260px;
        overflow: auto;
        padding: 6px 10px 10px;
        font-size: 12.5px;
        line-height: 1.5;
      }
    `,
  ];

  @property({ attribute: false }) tool!: ViewTool;
  @property({ attribute: false }) call!: CallTool;
  @property({ attribute: false }) enabled = true;

  @state() private open = false;
  @state() private fields: Field[] = [];
  @state() private values: Values = {};
  @state() private errors: Readonly<Record<string, string>> = {};
  @state() private running: AbortController | undefined;
  @state() private outcome: Outcome | undefined;
  private schema = "";

  override disconnectedCallback(): void {
    super.disconnectedCallback();
    this.running?.abort();
  }

  protected override willUpdate(changed: PropertyValues): void {
    const schema = JSON.stringify(this.tool.input_schema);
    if (!changed.has("tool") || schema === this.schema) return;
    this.schema = schema;
    this.fields = fieldsOf(this.tool.input_schema);
    this.values = initialValues(this.fields);
    this.errors = {};
  }

  protected override render(): TemplateResult {
    const { page_name, title, description } = this.tool;
    return html`<section class=${this.open ? "open" : ""} data-testid="tool-${page_name}">
      <div class="head">
        <button
          class="toggle bare"
          data-testid="toggle"
          aria-expanded=${this.open}
          @click=${() => (this.open = !this.open)}
        >
          ${icon("chevron")}
          <span class="name"><code>${page_name}</code><span class="muted">${visible(title || description)}</span></span>
        </button>
        ${this.hints()}${this.callButton()}
      </div>
      ${this.result()}${this.open ? this.form() : nothing}
    </section>`;
  }

  private hints(): TemplateResult | typeof nothing {
    const { readOnlyHint, destructiveHint } = this.tool.annotations;
    if (readOnlyHint === true) return html`<span class="chip" title="The page says that it only reads">reads</span>`;
    if (destructiveHint === true)
      return html`<span class="chip waiting" title="The page says that it may destroy">destructive</span>`;
    return nothing;
  }

  private callButton(): TemplateResult {
    return this.running
      ? html`<button class="call" data-testid="cancel" @click=${() => this.running?.abort()}>Cancel</button>`
      : html`<button class="call" data-testid="call" ?disabled=${!this.enabled} @click=${() => this.submit()}>
          Call
        </button>`;
  }

  private form(): TemplateResult {
    const { name, title, description } = this.tool;
    return html`<form novalidate @submit=${(event: Event) => (event.preventDefault(), this.submit())}>
      ${title && description !== title ? html`<p class="description">${visible(description)}</p>` : nothing}
      ${this.fields.map((field) =>
        fieldTemplate(field, this.values[field.name] ?? "", this.errors[field.name], (value) =>
          this.set(field.name, value),
        ),
      )}
      ${this.fields.length ? nothing : html`<p class="muted">It takes no arguments.</p>`}
      <p class="muted words">The model knows it as <code>${name}</code>.</p>
      <input type="submit" hidden />
    </form>`;
  }

  private result(): TemplateResult | typeof nothing {
    if (this.running)
      return html`<div class="result" role="status">
        <p>${icon("clock")} Waiting for the page…</p>
        <pre></pre>
      </div>`;
    if (!this.outcome) return nothing;
    const { ok, text, took } = this.outcome;
    return html`<div class="result" data-testid="result" data-status=${ok ? "ok" : "error"} role="status">
      <p>
        <span class="chip ${ok ? "ok" : "failed"}">${icon(ok ? "check" : "alert")} ${ok ? "Answered" : "Error"}</span>
        <span class="muted">${duration(took)}</span>
        <button class="bare" aria-label="Clear the result" @click=${() => (this.outcome = undefined)}>
          ${icon("cross")}
        </button>
      </p>
      <pre>${visible(text)}</pre>
    </div>`;
  }

  private set(name: string, value: string): void {
    this.values = { ...this.values, [name]: value };
    if (this.errors[name]) this.errors = { ...this.errors, [name]: "" };
  }

  private submit(): void {
    if (this.running || !this.enabled) return;
    const filled = toArguments(this.fields, this.values);
    if (filled.ok) void this.run(filled.arguments);
    else void this.focusFirstError(filled.errors);
  }

  private async focusFirstError(errors: Record<string, string>): Promise<void> {
    // A closed form has not been filled in yet: it is opened without errors.
    this.errors = this.open ? errors : {};
    this.open = true;
    await this.updateComplete;
    this.renderRoot.querySelector<HTMLElement>(`#field-${CSS.escape(Object.keys(errors)[0] ?? "")}`)?.focus();
  }

  private async run(args: JsonObject): Promise<void> {
    const running = (this.running = new AbortController());
    const began = performance.now();
    this.outcome = undefined;
    const outcome = await this.call(this.tool, args, running.signal)
      .then((result) => ({ ok: !result.isError, text: resultText(result) }))
      .catch((error: unknown) => ({ ok: false, text: running.signal.aborted ? "Cancelled." : messageOf(error) }));
    this.running = undefined;
    this.outcome = { ...outcome, took: performance.now() - began };
  }
}

/** The text of a result; its structured content if it has no text. */
function resultText(result: ToolResult): string {
  const text = result.texts.map(pretty).join("\n\n");
  return text || (result.structured === undefined ? "(nothing)" : JSON.stringify(result.structured, null, 2));
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
