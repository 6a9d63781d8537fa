/** Files that an app offers to the person: shown by name and size, and saved only with the person's consent. */
import type { McpUiDownloadFileRequest } from "@modelcontextprotocol/ext-apps/app-bridge";
import { attempt } from "../view/attempt";
import { fromBase64 } from "../view/base64";
import { size } from "./format";
import { singleTask } from "./links";

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

/** The dependencies of saving files. */
export interface Saving {
  /** Whether a person has just acted on the page. */
  isActive(): boolean;
  ask(message: string, names: string): Promise<boolean>;
  /** Aborts once the app is closed, and the answer no longer matters. */
  closed: AbortSignal;
  /** Records the person's answer, before anything is saved. */
  record(files: SavedFile[], answered: boolean): Promise<void>;
  /** Inform the person why nothing is saved. */
  refuse(words: string): void;
  save(file: SavedFile): void;
}

/** Saves the files of one question at a time; after a no, an app may ask again only after a gesture. */
export function fileSaver(by: Saving): (contents: Contents) => Promise<boolean> {
  const run = singleTask(by.refuse);
  let declined = false;
  return async (contents) => {
    const files = filesIn(contents);
    if (files.length === 0 || (declined && !by.isActive())) return false;
    return run(async () => {
      const answered = await by.ask(question(files), files.map(({ name, blob }) => `${name} (${size(blob.size)})`).join("\n"));
      if (by.closed.aborted) return false;
      declined = !answered;
      await by.record(files, !declined);
      if (!declined) files.forEach(by.save);
      return !declined;
    });
  };
}

function question(files: SavedFile[]): string {
  return files.length === 1 ? "Save this file from the app?" : `Save these ${files.length} files from the app?`;
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
