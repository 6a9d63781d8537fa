/** A page with a router, as frameworks such as Next render it: on the server, and then in the browser. */
import { createElement as h, useEffect, useState } from "react";
import { McpApp } from "webmcp-gateway-host/react";

/** The page at an address; `settings` is the same on both sides but for the app's own page, which the browser has. */
export function Site({ start, settings }) {
  const [path, setPath] = useState(start);
  const [count, setCount] = useState(0);
  useEffect(() => {
    const follow = () => setPath(location.pathname);
    addEventListener("popstate", follow);
    return () => removeEventListener("popstate", follow);
  }, []);
  const lead = (event) => {
    event.preventDefault();
    history.pushState(null, "", event.currentTarget.getAttribute("href"));
    setPath(location.pathname);
  };
  return h(
    "main",
    null,
    h("h1", null, `Page ${path}`),
    h("a", { href: path === "/" ? "/two" : "/", onClick: lead }, path === "/" ? "Two" : "One"),
    h("button", { onClick: () => setCount(count + 1) }, "Count"),
    h(McpApp, {
      key: path,
      title: `Clock ${path}`,
      className: "app",
      sandboxUrl: settings.sandboxUrl,
      resourceHtml: settings.html,
      resourceMeta: { prefersBorder: true }, // another object at each rendering, as handlers are other functions
      toolCallId: "call-1",
      toolInput: { page: path },
      hostContext: { locale: "de-CH" },
      onCallTool: ({ name }) => {
        if (name === "save") window.saved.push(path);
        return { content: [], structuredContent: { count } };
      },
      "onmcp-app-initialized": () => window.events.push(path),
    }),
  );
}
