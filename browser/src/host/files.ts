/** The files that an app offers, under names that are safe. */
import type { McpUiDownloadFileRequest } from "@modelcontextprotocol/ext-apps/app-bridge";
import { attempt } from "../view/attempt";
import { fromBase64 } from "../view/base64";

type Contents = McpUiDownloadFileRequest["params"]["contents"];

/** Files of one question. */
const MAX_FILES = 16;
const MAX_NAME = 150;
/** Characters that are unsafe in file names: controls, bidirectional marks, separators. */
const INVALID_CHARACTERS = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\\/:*?"<>|]/gu;

export interface SavedFile {
  name: string;
  blob: Blob;
}

/** Milliseconds that a browser may take to begin a download. */
const DOWNLOAD_LIFETIME = 60_000;

/** Save a file as a download. */
export function saveFile({ name, blob }: SavedFile): void {
  const url = URL.createObjectURL(blob);
  Object.assign(document.createElement("a"), { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), DOWNLOAD_LIFETIME);
}

/** The files; empty if one of them is a link, which this page does not follow. */
export function filesIn(contents: Contents): SavedFile[] {
  const files = contents.slice(0, MAX_FILES + 1).map((content) => {
    if (content.type !== "resource") return null;
    const { resource } = content;
    const data = "text" in resource ? resource.text : (attempt(() => fromBase64(resource.blob)) ?? null);
    // Never a type that a browser would display: it is saved, under its name.
    return data === null ? null : { name: fileNameOf(resource.uri), blob: new Blob([data], { type: "application/octet-stream" }) };
  });
  return files.length > MAX_FILES || files.includes(null) ? [] : (files as SavedFile[]);
}

/** A plain file name: no path, nothing invisible, not hidden. */
function fileNameOf(uri: string): string {
  const last = uri.replace(/[?#].*$/s, "").split("/").pop() ?? "";
  const whole = (attempt(() => decodeURIComponent(last)) ?? last).normalize("NFC").replace(INVALID_CHARACTERS, "_").replace(/^[.\s]+/, "");
  let length = whole.length;
  // By hand: a regular expression would be quadratic on a long row of dots.
  while (length > 0 && /[.\s]/.test(whole.charAt(length - 1))) length--;
  const name = whole.slice(0, length);
  const end = /\.[^.]{1,10}$/.exec(name)?.[0] ?? "";
  const short = name.length <= MAX_NAME ? name || "download" : name.slice(0, MAX_NAME - end.length) + end;
  return short.replace(/\p{Cs}/gu, "_"); // a lone surrogate, also of a truncated character: no record can contain it
}
