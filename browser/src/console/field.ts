/** One field of a form made from a JSON Schema, with its label, description and error. */
import { html, nothing, type TemplateResult } from "lit";
import { live } from "lit/directives/live.js";
import type { Field } from "./schema-form";

export type OnInput = (value: string) => void;

export function fieldTemplate(
  field: Field,
  value: string,
  error: string | undefined,
  onInput: OnInput,
): TemplateResult {
  const id = `field-${field.name}`;
  return html`<div class="field">
    <label for=${id}>
      ${field.label}${field.required ? html`<span class="required" aria-hidden="true">*</span>` : nothing}
      ${field.hint ? html`<span class="muted hint">${field.hint}</span>` : nothing}
    </label>
    ${control(field, id, value, error, onInput)}
    ${error ? html`<p class="error" id="${id}-error">${error}</p>` : nothing}
    ${field.description ? html`<p class="muted words" id="${id}-words">${field.description}</p>` : nothing}
  </div>`;
}

function control(field: Field, id: string, value: string, error: string | undefined, onInput: OnInput): TemplateResult {
  const told = error ? `${id}-error` : field.description ? `${id}-words` : nothing;
  const input = (event: Event): void => onInput((event.target as HTMLInputElement).value);
  const required = field.required ? "true" : nothing;
  const invalid = error ? "true" : nothing;
  switch (field.kind) {
    case "choice":
    case "boolean":
      return html`<select
        id=${id}
        data-testid=${id}
        .value=${live(value)}
        @change=${input}
        aria-required=${required}
        aria-invalid=${invalid}
        aria-describedby=${told}
      >
        <option value="" ?selected=${value === ""}>${field.required ? "Choose…" : "—"}</option>
        ${field.choices.map((choice, index) => html`<option value=${index} ?selected=${value === String(index)}>${choice.label}</option>`)}
      </select>`;
    case "long":
    case "json":
      return html`<textarea
        id=${id}
        data-testid=${id}
        class=${field.kind === "json" ? "mono" : ""}
        rows="3"
        spellcheck="false"
        .value=${live(value)}
        @input=${input}
        aria-required=${required}
        aria-invalid=${invalid}
        aria-describedby=${told}
      ></textarea>`;
    case "text":
    case "number":
    case "integer":
      return html`<input
        id=${id}
        data-testid=${id}
        autocomplete="off"
        spellcheck="false"
        inputmode=${field.kind === "text" ? "text" : field.kind === "integer" ? "numeric" : "decimal"}
        maxlength=${field.maxLength ?? nothing}
        .value=${live(value)}
        @input=${input}
        aria-required=${required}
        aria-invalid=${invalid}
        aria-describedby=${told}
      />`;
  }
}
