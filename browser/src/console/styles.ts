/** Styles that the components share. */
import { css } from "lit";

export const base = css`
  :host {
    display: block;
  }
  *,
  *::before,
  *::after {
    box-sizing: border-box;
  }
  [hidden] {
    display: none !important;
  }
  .icon {
    width: 1.15em;
    height: 1.15em;
    flex: none;
    vertical-align: -0.2em;
  }
  h1,
  h2,
  h3,
  p,
  ul,
  ol,
  dl,
  dd,
  pre {
    margin: 0;
    padding: 0;
  }
  ul,
  ol {
    list-style: none;
  }
  code,
  pre,
  .mono {
    font-family: var(--mono);
    font-size: 0.925em;
  }
  pre {
    white-space: pre-wrap;
    overflow-wrap: anywhere;
  }
  a {
    color: var(--accent);
  }
  :focus-visible {
    outline: 2px solid var(--accent);
    outline-offset: 2px;
  }
  .muted {
    color: var(--muted);
  }
  .quiet {
    position: absolute;
    width: 1px;
    height: 1px;
    overflow: hidden;
    clip-path: inset(50%);
    white-space: nowrap;
  }
  @media (prefers-reduced-motion: reduce) {
    *,
    *::before,
    *::after {
      animation-duration: 0.01ms !important;
      animation-iteration-count: 1 !important;
      transition-duration: 0.01ms !important;
    }
  }
`;

export const buttons = css`
  button,
  .button {
    display: inline-flex;
    align-items: center;
    justify-content: center;
    gap: 6px;
    min-height: 32px;
    padding: 4px 12px;
    border: 1px solid var(--line-strong);
    border-radius: 8px;
    background: var(--surface);
    color: var(--text);
    font: 500 13px/1.2 var(--sans);
    text-decoration: none;
    cursor: pointer;
    transition:
      background 0.12s,
      border-color 0.12s;
  }
  button:hover:not(:disabled),
  .button:hover {
    background: var(--raised);
    border-color: var(--muted);
  }
  button:disabled {
    opacity: 0.55;
    cursor: default;
  }
  button.primary {
    border-color: transparent;
    background: var(--accent);
    color: var(--on-accent);
  }
  button.primary:hover:not(:disabled) {
    background: var(--accent-strong);
  }
  button.bare,
  .button.bare {
    border-color: transparent;
    background: transparent;
    color: var(--muted);
    padding: 4px 8px;
  }
  button.bare:hover:not(:disabled),
  .button.bare:hover {
    background: var(--raised);
    color: var(--text);
  }
`;

/** A card with a heading and a scrolling body. */
export const panel = css`
  .panel {
    display: flex;
    flex-direction: column;
    min-height: 0;
    height: 100%;
    background: var(--surface);
    border: 1px solid var(--line);
    border-radius: var(--radius);
    box-shadow: var(--shadow);
    overflow: hidden;
  }
  .panel > header {
    display: flex;
    align-items: center;
    flex-wrap: wrap;
    gap: 8px;
    flex: none;
    min-height: 46px;
    padding: 7px 12px 7px 16px;
  }
  .panel > header > .icon {
    color: var(--muted);
  }
  h2 {
    font-size: 14px;
    font-weight: 600;
    letter-spacing: -0.005em;
  }
  .count {
    min-width: 20px;
    padding: 0 6px;
    border-radius: 10px;
    background: var(--raised);
    border: 1px solid var(--line);
    color: var(--muted);
    font-size: 12px;
    font-variant-numeric: tabular-nums;
    text-align: center;
  }
  .body {
    flex: 1;
    min-height: 0;
    overflow: auto;
    overscroll-behavior: contain;
    scrollbar-width: thin;
    scrollbar-color: var(--line-strong) transparent;
    border-top: 1px solid var(--line);
  }
  .empty {
    display: grid;
    gap: 4px;
    justify-items: center;
    padding: 22px 24px;
    color: var(--muted);
    text-align: center;
    text-wrap: balance;
  }
  .empty strong {
    color: var(--text);
    font-weight: 550;
  }
`;

export const chips = css`
  .chip {
    display: inline-flex;
    align-items: center;
    gap: 4px;
    padding: 0 7px;
    border-radius: 6px;
    --tone: var(--muted);
    background: color-mix(in srgb, var(--tone) 11%, transparent);
    color: var(--tone);
    font-size: 12px;
    font-weight: 550;
    line-height: 20px;
    white-space: nowrap;
  }
  .chip.ok {
    --tone: var(--ok);
  }
  .chip.refused,
  .chip.failed {
    --tone: var(--bad);
  }
  .chip.waiting {
    --tone: var(--warn);
    background: color-mix(in srgb, var(--glow) 18%, transparent);
  }
  .chip.running {
    --tone: var(--accent);
  }
  .mark {
    display: inline-flex;
    align-items: center;
    gap: 5px;
    color: var(--tone);
    font-weight: 600;
  }
  .person {
    --tone: var(--person);
  }
  .page {
    --tone: var(--page);
  }
  .model {
    --tone: var(--model);
  }
`;

/** A page of one card in the middle of the window. */
export const narrowPage = css`
  main {
    display: grid;
    gap: 16px;
    max-width: 560px;
    margin: clamp(16px, 8vh, 96px) auto;
    padding: 0 16px;
  }
  h1 {
    font-size: 20px;
    letter-spacing: -0.015em;
  }
  .card {
    background: var(--surface);
    border: 1px solid var(--line);
    border-radius: var(--radius);
    box-shadow: var(--shadow);
  }
  .button {
    justify-self: start;
  }
`;
