/** The style of the timeline. */
import { css } from "lit";

export const timelineStyles = css`
  .filter {
    display: flex;
    margin-left: auto;
    padding: 2px;
    border-radius: 9px;
    background: var(--sunken);
    border: 1px solid var(--line);
  }
  .filter button {
    display: inline-flex;
    align-items: center;
    gap: 4px;
    min-height: 24px;
    padding: 0 8px;
    border: 0;
    border-radius: 7px;
    background: none;
    color: var(--muted);
    font: 500 12.5px/1 var(--sans);
    cursor: pointer;
  }
  .filter button .icon {
    color: var(--tone);
    width: 13px;
    height: 13px;
  }
  .filter button:hover {
    color: var(--text);
  }
  .filter button[aria-pressed="true"] {
    background: var(--surface);
    color: var(--text);
    box-shadow: 0 1px 2px light-dark(#10182820, #0008);
  }
  ol {
    padding: 4px 0 12px;
  }
  .older {
    display: block;
    margin: 0 auto 12px;
    min-height: 28px;
    padding: 0 12px;
    border: 1px solid var(--line);
    border-radius: 8px;
    background: var(--surface);
    color: var(--muted);
    font: 500 12.5px/1 var(--sans);
    cursor: pointer;
  }
  .older:hover {
    background: var(--raised);
    color: var(--text);
  }
  .group {
    position: relative;
    padding: 4px 12px 4px 10px;
    content-visibility: auto;
    contain-intrinsic-size: auto 62px;
  }
  .group + .group {
    border-top: 1px solid color-mix(in srgb, var(--line) 60%, transparent);
  }
  .group > ul {
    margin: 0 0 4px 12px;
    padding-left: 10px;
    border-left: 2px solid color-mix(in srgb, var(--tone) 35%, transparent);
  }
  .group li {
    content-visibility: auto;
    contain-intrinsic-size: auto 32px;
  }
  .cause,
  .line {
    display: flex;
    flex: 1;
    align-items: center;
    gap: 8px;
    min-width: 0;
  }
  .cause {
    padding: 5px 6px;
  }
  .what {
    flex: 1;
    min-width: 0;
    overflow: hidden;
    text-overflow: ellipsis;
    white-space: nowrap;
    color: var(--muted);
  }
  .what code {
    color: var(--text);
    font-weight: 600;
  }
  time,
  .took {
    color: var(--muted);
    font-size: 12px;
    font-variant-numeric: tabular-nums;
    white-space: nowrap;
  }
  .took {
    min-width: 46px;
    text-align: right;
  }
  .record > summary {
    display: flex;
    align-items: center;
    padding: 4px 6px;
    border-radius: 7px;
    cursor: pointer;
    list-style: none;
  }
  .record > summary::-webkit-details-marker {
    display: none;
  }
  .record > summary:focus-visible {
    outline-offset: -2px;
  }
  .record > summary:hover {
    background: var(--raised);
  }
  .record[open] > summary {
    background: var(--raised);
    border-radius: 7px 7px 0 0;
  }
  .method {
    flex: none;
    min-width: 44px;
    font: 600 11.5px/1 var(--mono);
    color: var(--muted);
  }
  .url {
    flex: 1 1 auto;
    min-width: 40px;
    overflow: hidden;
    text-overflow: ellipsis;
    white-space: nowrap;
  }
  .outcome {
    display: flex;
    flex: 0 6 auto;
    align-items: center;
    gap: 8px;
    min-width: 114px;
    justify-content: flex-end;
  }
  .head .outcome,
  .refused .outcome,
  .failed .outcome,
  [data-kind="approval"] .outcome {
    flex: none;
  }
  .chip {
    flex: 0 1 auto;
    min-width: 60px;
  }
  .chip .words {
    overflow: hidden;
    text-overflow: ellipsis;
  }
  /* Where there is little room, what came of it goes below. */
  .body {
    container-type: inline-size;
  }
  @container (max-width: 440px) {
    .line {
      flex-wrap: wrap;
      row-gap: 2px;
    }
    .head .took {
      min-width: 0;
    }
    .what {
      flex: 1 0 auto;
      max-width: calc(100% - 90px);
    }
    .url {
      flex: 1 1 110px;
    }
    .outcome {
      flex: none;
      max-width: 100%;
      min-width: 0;
      margin-left: auto;
    }
  }
  .running .chip .icon {
    animation: turn 1.4s linear infinite;
  }
  .waiting .chip .icon {
    animation: breathe 1.4s ease-in-out infinite;
  }
  @keyframes turn {
    to {
      transform: rotate(360deg);
    }
  }
  @keyframes breathe {
    50% {
      opacity: 0.35;
    }
  }
  .details {
    display: grid;
    gap: 12px;
    padding: 8px 10px 12px;
    border-radius: 0 0 7px 7px;
    background: var(--raised);
    font-size: 12.5px;
  }
  dl {
    display: grid;
    gap: 3px;
  }
  dl > div {
    display: grid;
    grid-template-columns: 84px minmax(0, 1fr);
    gap: 8px;
  }
  dt {
    color: var(--muted);
  }
  dd {
    overflow-wrap: anywhere;
  }
  dd.mono {
    font-size: 12px;
  }
  .steps {
    display: grid;
    gap: 4px;
  }
  .step {
    display: grid;
    grid-template-columns: 84px minmax(0, 1fr) 56px;
    align-items: center;
    gap: 8px;
    color: var(--muted);
  }
  .step svg {
    width: 100%;
    height: 6px;
  }
  .track {
    fill: var(--line);
  }
  .bar {
    fill: var(--accent);
  }
`;
