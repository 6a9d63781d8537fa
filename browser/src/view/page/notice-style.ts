/** The style of the notice: a constructed sheet, which needs no permission of a content policy. */

/** `!important` in a shadow root wins over any rule of the page. The build minifies the text. */
const STYLE = `
:host { all: initial !important; color-scheme: light dark !important; position: fixed !important; inset: auto 16px 16px auto !important;
  z-index: 2147483647 !important; width: min(380px, 100% - 32px) !important; }
section { max-height: 40vh; overflow: auto; border: 1px solid #8885; border-left: 5px solid #e90; border-radius: 12px;
  background: Canvas; color: CanvasText; box-shadow: 0 8px 28px #0004; font: 14px/1.4 system-ui, sans-serif; }
article { display: flex; align-items: center; gap: 12px; padding: 12px 14px; }
article + article { border-top: 1px solid #8885; }
div { flex: 1; min-width: 0; overflow-wrap: anywhere; }
b, span { display: block; }
span { font-size: 13px; opacity: .75; }
b { font-weight: 600; user-select: all; }
button { min-height: 34px; padding: 0 13px; border: 1px solid #0000; border-radius: 12px; background: light-dark(#4050d8, #8c9aff); color: Canvas;
  font: inherit; font-weight: 600; cursor: pointer; }
@media print { :host { display: none !important; } }
`;

export function noticeSheet(): CSSStyleSheet {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  return sheet;
}
