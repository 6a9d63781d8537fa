/** The values of the attributes of `<mcp-app>`: a property has the value of its attribute, and is not reflected. */
import type { McpUiHostContext } from "@modelcontextprotocol/ext-apps/app-bridge";
import { attempt } from "../../view/attempt";
import { plainContext } from "./host-context";
import { ATTRIBUTES, parseAttribute, parseProperty, TIMEOUT, type AttributeName, type DisplayMode, type ListedTool } from "./options";

/** Outside of a browser, the element can be imported, and rendered by its tag. */
const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

/** Properties of every HTML element. */
const NATIVE: ReadonlySet<AttributeName> = new Set(["title", "aria-label"]);

/** A framework rendered the element on a server: it sets its properties before it removes this attribute. */
export const HYDRATING = "data-hydrating";

export abstract class AppAttributes extends Base {
  static readonly observedAttributes: readonly string[] = [...Object.keys(ATTRIBUTES), HYDRATING];

  declare gateway: string | undefined;
  declare app: string | undefined;
  declare upstream: string | undefined;
  declare resourceUri: string | undefined;
  declare resourceHtml: string | undefined;
  declare resourceMeta: { csp?: object; permissions?: object; prefersBorder?: boolean } | undefined;
  declare sandboxUrl: string | undefined;
  /** The tools that the page may call are those with the visibility `app`; without a list, the server decides. */
  declare tools: readonly ListedTool[] | undefined;
  declare displayModes: readonly DisplayMode[] | undefined;
  declare fallbackText: string | undefined;
  declare mcpAppId: string | undefined;
  declare toolCallId: string | undefined;
  declare toolName: string | undefined;
  declare toolInput: unknown;
  declare toolResult: unknown;
  declare allowedLinks: readonly string[] | undefined;
  declare capabilities: readonly string[] | undefined;
  declare sizing: string | undefined;

  private readonly values = new Map<AttributeName, unknown>();

  /** Members of the context that replace the measured ones; a change is sent without showing the app anew. */
  get hostContext(): McpUiHostContext {
    return { ...((this.values.get("host-context") as McpUiHostContext | undefined) ?? {}) };
  }
  set hostContext(given: unknown) {
    this.setValue("host-context", plainContext(given, (problem) => this.report("bad-context", problem)));
  }

  /** Seconds that the page may take to be initialized. */
  get timeout(): number {
    return (this.values.get("timeout") as number | undefined) ?? TIMEOUT;
  }
  set timeout(given: unknown) {
    this.setValue("timeout", given);
  }

  attributeChangedCallback(name: AttributeName | typeof HYDRATING, before: string | null, text: string | null): void {
    if (before === text) return;
    if (name === HYDRATING) return this.scheduleUpdate();
    if (NATIVE.has(name)) return this.receiveValue(name);
    try {
      const value = parseAttribute(name, text);
      if (name === "host-context") this.hostContext = value;
      else this.setValue(name, value);
    } catch (error) {
      this.report("bad-attribute", (error as Error).message);
    }
  }

  /** Show the app, if it is to be shown, after all changes of a moment. */
  protected abstract scheduleUpdate(): void;

  /** An attribute or its property has another value. */
  protected abstract receiveValue(name: AttributeName): void;

  /** A value is not what it must be: the former one stays. */
  protected abstract report(code: "bad-attribute" | "bad-context", problem: string): void;

  protected getValue(name: AttributeName): unknown {
    return this.values.get(name);
  }

  protected setValue(name: AttributeName, given: unknown): void {
    const before = this.values.get(name);
    try {
      this.values.set(name, parseProperty(name, given));
    } catch (error) {
      return this.report("bad-attribute", (error as Error).message);
    }
    // Frameworks make a new object at each rendering: an equal one must not show the app anew.
    const isSame = "remounts" in ATTRIBUTES[name] && attempt(() => isEqual(before, this.values.get(name))) === true;
    if (!isSame) this.receiveValue(name);
  }

  /** Take the properties that were set before the element was defined. */
  protected upgradeProperties(): void {
    const self = this as unknown as Record<string, unknown>;
    for (const { property } of Object.values(ATTRIBUTES)) {
      if (!Object.hasOwn(self, property) || !(property in Object.getPrototypeOf(self))) continue;
      const value = self[property];
      delete self[property];
      self[property] = value;
    }
  }

  static {
    for (const [name, { property }] of Object.entries(ATTRIBUTES) as [AttributeName, { property: string }][]) {
      if (property in this.prototype) continue; // native, or defined above
      Object.defineProperty(this.prototype, property, {
        configurable: true,
        enumerable: true,
        get(this: AppAttributes) {
          return this.getValue(name);
        },
        set(this: AppAttributes, value: unknown) {
          this.setValue(name, value);
        },
      });
    }
  }
}

function isEqual(one: unknown, other: unknown): boolean {
  if (typeof one !== "object" || typeof other !== "object") return one === other;
  const text = JSON.stringify(one);
  return text !== undefined && text === JSON.stringify(other);
}
