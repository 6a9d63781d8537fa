/** The packer's data about the app in the page: `<meta name="webmcp-gateway" content="{…}">`. */

export interface Config {
  /** The app's id. */
  app: string;
  /** The app's name for people. */
  title: string;
  /** The base of the app's relative URLs: a path, or the absolute URL of the app's own site. */
  base: string;
}

interface Page {
  querySelector(selector: string): { getAttribute(name: string): string | null } | null;
}

export function readConfig(page: Page): Config {
  const written: Partial<Config> = JSON.parse(
    page.querySelector('meta[name="webmcp-gateway"]')?.getAttribute("content") ?? "{}",
  );
  const app = written.app ?? "app";
  return { app, title: written.title ?? app, base: written.base ?? "/" };
}
