/** The look of the notice: a constructed sheet, which needs no permission of a content policy. */

/** `!important` in a shadow root wins over any rule of the page. */
const STYLE = `
:host { all: initial !important; position: fixed !important; inset: auto 16px 16px auto !important; z-index: 2147483647 !important;
  box-sizing: border-box !important; width: min(380px, 100% - 32px) !important;
  --surface: #fff; --text: #171a21; --muted: #5c6472; --line: #1018281f; --accent: #4050d8; --on: #fff; --over: #323fb8;
  --mark: #8f5500; --tint: #fdf0d9; --shadow: 0 1px 2px #10182814, 0 8px 28px #1018282e; }
.list { max-height: 50vh; overflow: auto; overscroll-behavior: contain; border: 1px solid var(--line); border-radius: 14px;
  background: var(--surface); color: var(--text); box-shadow: var(--shadow);
  font: 14px/1.4 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; animation: rise .18s ease-out; }
.row { display: flex; align-items: center; gap: 12px; padding: 12px; }
.row + .row { border-top: 1px solid var(--line); }
.mark { flex: none; display: grid; place-items: center; width: 36px; height: 36px; border-radius: 10px; color: var(--mark); background: var(--tint); }
.words { flex: 1; min-width: 0; }
b, .words span { display: block; overflow-wrap: anywhere; }
b { font-weight: 600; }
.words span { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; color: var(--muted); font-size: 13px; }
.words .address { display: block; user-select: all; color: var(--text); }
button { flex: none; min-height: 34px; padding: 0 14px; border: 0; border-radius: 9px; background: var(--accent); color: var(--on);
  font: inherit; font-weight: 600; cursor: pointer; }
button:hover { background: var(--over); }
button:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
@media (prefers-color-scheme: dark) {
  :host { color-scheme: dark !important; --surface: #1c2028; --text: #e8eaef; --muted: #9aa3b2; --line: #ffffff24; --accent: #8c9aff;
    --on: #0f1220; --over: #a5b0ff; --mark: #f2b65a; --tint: #3a2d14; --shadow: 0 1px 2px #0006, 0 8px 28px #0009; }
}
@media (max-width: 440px) { :host { inset: auto 8px 8px 8px !important; width: auto !important; } }
@media (max-width: 340px) { .mark { display: none; } }
@media (prefers-reduced-motion: reduce) { .list { animation: none; } }
@media (forced-colors: active) { button { border: 1px solid ButtonText; } }
@media print { :host { display: none !important; } }
@keyframes rise { from { opacity: 0; transform: translateY(8px); } }
`;

export function noticeSheet(): CSSStyleSheet {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE.replace(/\n\s*/g, ""));
  return sheet;
}
