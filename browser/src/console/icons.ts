/** The icons of the console, drawn in the current text colour. */
import { html, svg, type TemplateResult } from "lit";

const PATHS = {
  person: svg`<circle cx="8" cy="5" r="2.6"/><path d="M2.8 13.6c.5-2.9 2.6-4.4 5.2-4.4s4.7 1.5 5.2 4.4"/>`,
  page: svg`<rect x="2" y="3" width="12" height="10" rx="1.8"/><path d="M2 6.2h12"/>`,
  globe: svg`<circle cx="8" cy="8" r="5.8"/><path d="M2.2 8h11.6M8 2.2c3.4 3.4 3.4 8.2 0 11.6M8 2.2c-3.4 3.4-3.4 8.2 0 11.6"/>`,
  info: svg`<circle cx="8" cy="8" r="5.8"/><path d="M8 7.4v3.4M8 5.2v.1"/>`,
  model: svg`<path d="M7 2.2 8.3 5.7 11.8 7 8.3 8.3 7 11.8 5.7 8.3 2.2 7 5.7 5.7Z"/><path d="M12.3 10.2l.6 1.5 1.5.6-1.5.6-.6 1.5-.6-1.5-1.5-.6 1.5-.6Z"/>`,
  bell: svg`<path d="M3.4 11.6h9.2c-.9-1-1.2-2-1.2-4.4a3.4 3.4 0 0 0-6.8 0c0 2.4-.3 3.4-1.2 4.4ZM6.8 13.6a1.4 1.4 0 0 0 2.4 0"/>`,
  check: svg`<path d="m3.2 8.4 3.2 3.2 6.4-7"/>`,
  cross: svg`<path d="m4 4 8 8M12 4l-8 8"/>`,
  bar: svg`<circle cx="8" cy="8" r="5.8"/><path d="m4 4 8 8"/>`,
  alert: svg`<path d="M8 2.3 14.3 13H1.7Z"/><path d="M8 6.5v3M8 11.3v.1"/>`,
  clock: svg`<circle cx="8" cy="8" r="5.8"/><path d="M8 4.8V8l2.2 1.6"/>`,
  unknown: svg`<path d="M5.6 5.8a2.4 2.4 0 1 1 3.5 2.2c-.8.4-1.1.9-1.1 1.7M8 12.3v.1"/>`,
  chevron: svg`<path d="m5.5 3.5 4.5 4.5-4.5 4.5"/>`,
  reload: svg`<path d="M13.2 8a5.2 5.2 0 1 1-1.6-3.8M13.4 2v2.6h-2.6"/>`,
  open: svg`<path d="M9 2.8h4.2V7M13 3 7.6 8.4M11.5 9.6v2.6a1 1 0 0 1-1 1H3.8a1 1 0 0 1-1-1V5.5a1 1 0 0 1 1-1h2.6"/>`,
  play: svg`<path d="M5 3.2v9.6L12.6 8Z"/>`,
  stop: svg`<rect x="4" y="4" width="8" height="8" rx="1.2"/>`,
  shield: svg`<path d="M8 1.9 13.2 4v3.7c0 3-2.1 5.3-5.2 6.4-3.1-1.1-5.2-3.4-5.2-6.4V4Z"/>`,
  tools: svg`<path d="M9.3 4.2a3 3 0 0 1 3.8-1.5l-1.8 1.8.2 1.3 1.3.2 1.6-1.7a3 3 0 0 1-4 3.7l-4.9 5a1.4 1.4 0 0 1-2-2l5-4.9a3 3 0 0 1 .8-1.9Z"/>`,
  list: svg`<path d="M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.1M2.5 8h.1M2.5 12h.1"/>`,
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName): TemplateResult {
  return html`<svg
    class="icon"
    viewBox="0 0 16 16"
    fill="none"
    stroke="currentColor"
    stroke-width="1.5"
    stroke-linecap="round"
    stroke-linejoin="round"
    aria-hidden="true"
    focusable="false"
  >
    ${PATHS[name]}
  </svg>`;
}
