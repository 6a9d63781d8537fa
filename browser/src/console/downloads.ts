/** Files that an app offers to the person: shown by name and size, and saved only with the person's consent. */
import type { McpUiDownloadFileRequest } from "@modelcontextprotocol/ext-apps/app-bridge";
import { filesIn, type SavedFile } from "../host/files";
import { size } from "./format";
import { singleTask } from "./links";

type Contents = McpUiDownloadFileRequest["params"]["contents"];

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
