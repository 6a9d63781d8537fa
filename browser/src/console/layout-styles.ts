/** The layout of the page: its parts side by side, or below each other in narrow windows. */
import { css } from "lit";

export const layout = css`
  :host {
    display: flex;
    flex-direction: column;
    height: 100dvh;
  }
  main {
    display: grid;
    grid-template-columns: minmax(0, 1fr) clamp(392px, 33vw, 500px);
    gap: 16px;
    flex: 1;
    min-height: 0;
    padding: 0 20px 20px;
  }
  .app {
    display: flex;
    flex-direction: column;
    min-width: 0;
    min-height: 0;
    background: var(--surface);
    border: 1px solid var(--line);
    border-radius: var(--radius);
    box-shadow: var(--shadow);
    overflow: hidden;
  }
  gateway-frame {
    flex: 1;
  }
  .side {
    display: flex;
    flex-direction: column;
    gap: 16px;
    min-width: 0;
    min-height: 0;
    margin: -4px;
    padding: 4px;
    overflow: hidden auto;
    scrollbar-width: none;
  }
  .side > * {
    display: flex;
    flex-direction: column;
  }
  gateway-approvals {
    flex: none;
    min-height: 0;
    max-height: 66%;
  }
  gateway-tools {
    flex: 0 1 auto;
    min-height: 136px;
  }
  gateway-timeline {
    flex: 1 1 0;
    min-height: 236px;
  }
  .banner {
    display: flex;
    align-items: center;
    gap: 8px;
    margin: 0 20px 12px;
    padding: 8px 14px;
    border: 1px solid color-mix(in srgb, var(--bad) 30%, var(--line));
    border-radius: 10px;
    background: color-mix(in srgb, var(--bad) 8%, var(--surface));
  }
  .banner .icon {
    color: var(--bad);
  }
  gateway-problems {
    flex: none;
    margin: 0 20px 12px;
  }
  main.alone {
    display: grid;
    grid-template-columns: auto;
    flex: 1;
    place-content: center;
    justify-items: center;
    gap: 8px;
    padding: 24px;
    text-align: center;
  }
  .alone p {
    max-width: 48ch;
    color: var(--muted);
  }
  .alone ul {
    display: flex;
    gap: 12px;
  }
  .toast {
    position: fixed;
    right: 16px;
    bottom: 16px;
    left: 16px;
    z-index: 2;
    width: fit-content;
    min-height: 40px;
    margin: auto;
    border-color: transparent;
    border-radius: 20px;
    background: var(--warn);
    color: var(--surface);
    font-weight: 600;
    box-shadow: 0 4px 20px #0005;
  }
  .toast:hover:not(:disabled) {
    background: var(--warn);
    filter: brightness(1.08);
  }
  @media (min-width: 1720px) {
    main {
      grid-template-columns: minmax(0, 1fr) 920px;
    }
    .side {
      display: grid;
      grid-template: auto minmax(0, 1fr) / minmax(0, 5fr) minmax(0, 6fr);
    }
    gateway-approvals {
      max-height: 460px;
    }
    gateway-timeline {
      grid-area: 1 / 2 / 3 / 3;
    }
  }
  @media (max-width: 979px) {
    :host {
      height: auto;
      min-height: 100dvh;
    }
    main {
      display: flex;
      flex-direction: column;
      padding: 0 14px 24px;
    }
    .banner,
    gateway-problems {
      margin-inline: 14px;
    }
    .side {
      display: contents;
    }
    .app {
      flex: none;
      height: max(440px, 74dvh);
    }
    gateway-approvals.asks {
      order: -1;
      max-height: none;
    }
    gateway-tools,
    gateway-timeline {
      flex: none;
      max-height: 86dvh;
    }
  }
`;
