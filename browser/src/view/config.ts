/** What the packer wrote about the app into the page: `<meta name="webmcp-gateway" content="{…}">`. */

export interface Config {
  /** The app's id. */
  app: string;
  /** The app's name for people. */
  title: string;
  /** The URL that the app's relative URLs are relative to: a path, or the absolute URL of the app's own site. */
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
