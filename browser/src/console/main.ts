/** The console page. */
import { LitElement, html } from "lit";
import { customElement, property } from "lit/decorators.js";

@customElement("gateway-console")
export class GatewayConsole extends LitElement {
  @property() heading = "webmcp-gateway";

  override render(): unknown {
    return html`<h1>${this.heading}</h1>`;
  }
}
