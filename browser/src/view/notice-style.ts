/** The look of the notice: a constructed sheet, which needs no permission of a content policy. */

/** `!important` in a shadow root wins over any rule of the page. The build takes out what only people read. */
const STYLE = `
:host { all: initial !important; color-scheme: light dark !important; position: fixed !important; inset: auto 16px 16px auto !important;
  z-index: 2147483647 !important; box-sizing: border-box !important; width: min(380px, 100% - 32px) !important; }
.list { max-height: 50vh; overflow: auto; border: 1px solid #8885; border-radius: 14px; background: Canvas; color: CanvasText;
  box-shadow: 0 8px 28px #0004; font: 14px/1.4 system-ui, sans-serif; }
.row { display: flex; align-items: center; gap: 12px; padding: 12px; }
.row + .row { border-top: inherit; }
.mark { padding: 8px; border-radius: 10px; color: light-dark(#8f5500, #f2b65a); background: #e905; }
.mark::after { content: ""; display: block; width: 20px; height: 20px; background: currentColor;
  clip-path: path("M10 2 17 5v5c0 4-3 7-7 8-4-1-7-4-7-8V5Z"); }
.words { flex: 1; min-width: 0; overflow-wrap: anywhere; }
span { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 3; overflow: hidden; color: light-dark(#5c6472, #9aa3b2); font-size: 13px; }
b, .address { display: block; font-weight: 600; color: inherit; user-select: all; }
button { min-height: 34px; padding: 0 14px; border: 0; border-radius: 9px; background: light-dark(#4050d8, #8c9aff); color: Canvas;
  font: inherit; font-weight: 600; cursor: pointer; }
@media (max-width: 440px) { :host { inset: auto 8px 8px !important; width: auto !important; } }
@media (max-width: 340px) { .mark { display: none; } }
@media (forced-colors: active) { button { border: 1px solid; } }
@media print { :host { display: none !important; } }
`;

export function noticeSheet(): CSSStyleSheet {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  return sheet;
}
