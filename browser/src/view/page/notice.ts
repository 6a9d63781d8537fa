/** A small notice over the page while calls wait for a person's approval; isolated from the page's styles. */

import { noticeSheet } from "./notice-style";
import type { Approval } from "../http/pending";

/** Shows `approval`, or other news under its own title, until the returned function is called. */
export type ShowNotice = (approval: Omit<Approval, "id"> & { title?: string }) => () => void;

function element<Name extends keyof HTMLElementTagNameMap>(name: Name, ...content: (Node | string)[]): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  made.append(...content);
  return made;
}

/** `open` opens a URL for the person; it returns false if the host cannot. */
export function createNotice(open: (url: string) => Promise<boolean>): ShowNotice {
  let box: HTMLElement | undefined;
  const list = element("section");

  function show(): void {
    if (!box) {
      box = document.createElement("webmcp-gateway-notice");
      const root = box.attachShadow({ mode: "closed" });
      root.adoptedStyleSheets = [noticeSheet()];
      root.append(list);
    }
    if (!box.isConnected) document.documentElement.append(box);
  }

  function reviewButton(url: string, words: HTMLElement): HTMLElement {
    const button = element("button", "Review");
    button.onclick = async () => {
      if (await open(url)) return;
      // The person has to copy the address by hand.
      words.append(element("span", "Answer at this address:"), element("b", url));
      button.remove();
    };
    return button;
  }

  function row({ message, url, title }: Parameters<ShowNotice>[0]): HTMLElement {
    const words = element("div", element("b", title ?? "Waiting for approval"), element("span", message || "A request of this app"));
    const made = element("article", words, ...(url ? [reviewButton(url, words)] : []));
    made.role = title ? "status" : "alert";
    return made;
  }

  return (approval) => {
    const made = row(approval);
    list.append(made);
    show();
    return () => {
      made.remove();
      if (!list.firstChild) box!.remove();
    };
  };
}
