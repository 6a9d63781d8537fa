/** The styles of an app's card, tile, panel and workspace; a page changes them by custom properties and parts. */
export const surfaceStyles = `
:host {
  --accent: var(--mcp-app-accent, light-dark(#3b49c9, #a3adff));
  --text: var(--mcp-app-text, light-dark(#171a21, #e9ebf0));
  --muted: var(--mcp-app-muted, light-dark(#555d6b, #a3acba));
  --surface: var(--mcp-app-surface, light-dark(#ffffff, #171a20));
  --hover: var(--mcp-app-hover, light-dark(#f3f4f7, #21252e));
  --line: var(--mcp-app-line, light-dark(#dfe2e8, #2f3540));
  --radius: var(--mcp-app-radius, 14px);
  display: block;
  min-width: 0;
  height: 100%;
  font: var(--mcp-app-font, 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif);
  text-align: start;
}
*, ::before, ::after { box-sizing: border-box; }
[hidden] { display: none !important; }
h2 { margin: 0; font: inherit; font-weight: 600; }
.icon { width: 18px; height: 18px; flex: none; }
button { font: inherit; color: inherit; cursor: pointer; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
h2:focus { outline: none; }

.bar, .tile, dialog, .workspace, .problem { color: var(--text); }
.card { display: flex; flex-direction: column; position: relative; height: 100%; border: 1px solid var(--line); border-radius: var(--radius); background: var(--surface); overflow: clip; }
.card.plain { border: 0; border-radius: 0; background: none; overflow: visible; }
.card .bar { flex: none; }
::slotted([slot=inline]) { flex: 1 1 auto; min-height: 0; }
.bar { display: flex; align-items: center; gap: 4px; min-height: 40px; padding-block: 3px; padding-inline: 14px 6px; border-block-end: 1px solid var(--line); }
.bar h2, .bar .name { flex: 1; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.card .bar .name { color: var(--muted); font-size: 13px; }
.tool { display: grid; place-content: center; width: 34px; height: 34px; padding: 0; border: 0; border-radius: 9px; background: none; color: var(--muted); }
.tool:hover { background: var(--hover); color: var(--text); }
@media (pointer: coarse) { .tool { width: 44px; height: 44px; } }

.tile { display: flex; align-items: center; gap: 12px; width: 100%; max-width: 480px; min-height: 64px; padding: 10px 14px; border: 1px solid var(--line); border-radius: var(--radius); background: var(--surface); text-align: start; }
.tile:hover { background: var(--hover); }
.tile[data-viewing] { border-color: var(--accent); }
.tile .sign { display: grid; place-content: center; width: 40px; height: 40px; flex: none; border-radius: 10px; background: var(--hover); color: var(--accent); }
.tile:hover .sign { background: var(--surface); }
.tile .words { display: grid; flex: 1; min-width: 0; }
.tile .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-weight: 600; }
.tile .state { color: var(--muted); font-size: 13px; }
.tile[data-viewing] .state { color: var(--accent); font-weight: 600; }

dialog, .workspace { flex-direction: column; padding: 0; border: 1px solid var(--line); background: var(--surface); color: var(--text); overflow: clip; overscroll-behavior: contain; }
dialog[open], .workspace:popover-open { display: flex; }
dialog { width: calc(100vw - 48px); max-width: 1280px; height: calc(100dvh - 48px); max-height: none; margin: auto; border-radius: var(--radius); box-shadow: 0 24px 64px #0006; }
dialog::backdrop { background: light-dark(#0f121a80, #000a); }
.guard { position: absolute; width: 1px; height: 1px; padding: 0; border: 0; background: none; outline: none; }
.workspace { position: fixed; inset: 0 0 0 auto; width: clamp(360px, 46vw, 860px); height: auto; margin: 0; }
.workspace[data-docked] { border-width: 0; border-inline-start-width: 1px; padding-block: env(safe-area-inset-top) env(safe-area-inset-bottom); padding-inline-end: env(safe-area-inset-right); }
:host(:dir(rtl)) .workspace[data-docked] { inset: 0 auto 0 0; }
dialog .bar, .workspace .bar { flex: none; min-height: 52px; }
::slotted([slot=panel]), ::slotted([slot=workspace]) { flex: 1; min-height: 0; }

@media (max-width: 640px) {
  dialog { width: 100vw; max-width: none; height: 100dvh; border: 0; border-radius: 0; padding: env(safe-area-inset-top) env(safe-area-inset-right) env(safe-area-inset-bottom) env(safe-area-inset-left); }
}
@media (prefers-reduced-motion: no-preference) {
  .tile { transition: background-color .15s, border-color .15s; }
  dialog[open] { animation: rise .18s ease-out; }
  .workspace[data-docked]:popover-open { animation: slide .2s ease-out; }
  @keyframes rise { from { opacity: 0; transform: translateY(12px); } }
  @keyframes slide { from { opacity: 0; transform: translateX(24px); } }
  :host(:dir(rtl)) .workspace[data-docked]:popover-open { animation-name: slide-rtl; }
  @keyframes slide-rtl { from { opacity: 0; transform: translateX(-24px); } }
}
@media (forced-colors: active) {
  .tile[data-viewing] { border-width: 2px; }
}
`;
