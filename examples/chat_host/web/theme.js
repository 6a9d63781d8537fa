/** Light or dark: as the system has it, until the person chooses. Apps follow the colour scheme of the page. */
import { icon } from "./dom.js";

const STORED = "chat-host:theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => localStorage.getItem(STORED);
export const theme = () => chosen() ?? (dark.matches ? "dark" : "light");

/** Let a button switch between the two. */
export function setUpTheme(button) {
  const show = () => {
    const now = theme();
    if (chosen()) document.documentElement.dataset.theme = now;
    button.setAttribute("aria-pressed", String(now === "dark"));
    button.setAttribute("aria-label", "Dark");
    button.querySelector(".icon").replaceWith(icon(now === "dark" ? "sun" : "moon"));
    dispatchEvent(new CustomEvent("themechange", { detail: now }));
  };
  button.addEventListener("click", () => {
    localStorage.setItem(STORED, theme() === "dark" ? "light" : "dark");
    show();
  });
  dark.addEventListener("change", show);
  show();
}
