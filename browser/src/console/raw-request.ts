/** The raw call: request line, headers and body as text, with nothing hidden and everything reachable. */
import { css, html, type TemplateResult } from "lit";
import { bodySize, visible, visibleLine } from "./format";
import { pretty } from "./json";
import type { Question } from "./types";

export const rawStyles = css`
  .call {
    max-height: var(--call-height, min(260px, 36dvh));
    overflow: auto;
    overscroll-behavior: contain;
    padding: 8px 12px 10px;
    border-top: 1px solid var(--line);
    font: 12.5px/1.5 var(--mono);
    scrollbar-width: thin;
    scrollbar-color: var(--line-strong) transparent;
  }
  .call p {
    padding-left: 2ch;
    text-indent: -2ch;
    overflow-wrap: anywhere;
    white-space: pre-wrap;
    unicode-bidi: isolate;
  }
  .call .size {
    margin: 8px -12px 6px;
    padding: 4px 12px;
    background: var(--sunken);
    color: var(--muted);
    font-family: var(--sans);
    text-indent: 0;
  }
  .call pre {
    font-size: 12.5px;
    unicode-bidi: isolate;
  }
`;

export function rawRequest({ method, target, headers, body, size }: Question): TemplateResult {
  return html`<div class="call" data-testid="raw" tabindex="0" role="region" aria-label="Raw request">
    <p>${visibleLine(`${method} ${target}`)}</p>
    ${headers.map(([name, value]) => headerTemplate(name, value))}
    <p class="size" data-testid="body-size">${size ? `Body, ${bodySize(size)}` : "No body"}</p>
    ${size ? html`<pre data-testid="body">${visible(pretty(body))}</pre>` : ""}
  </div>`;
}

function headerTemplate(name: string, value: string): TemplateResult {
  return html`<p data-testid="header"><span class="muted">${visibleLine(name)}:</span> ${visibleLine(value)}</p>`;
}
