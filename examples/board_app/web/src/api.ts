/** The board's backend. */
import axios, { isAxiosError } from "axios";

export interface CardFile {
  id: string;
  name: string;
  type: string;
  size: number;
}

export interface Card {
  id: string;
  title: string;
  note: string;
  column: string;
  files: CardFile[];
}

export interface Column {
  id: string;
  title: string;
  cards: Card[];
}

export interface Board {
  revision: number;
  columns: Column[];
}

/** Characters of a title, and bytes of a file: the backend takes no more. */
export const LONGEST_TITLE = 120;
export const LARGEST_FILE = 2_000_000;

const http = axios.create({ baseURL: "/api" });

export async function getBoard(signal?: AbortSignal): Promise<Board> {
  return (await http.get<Board>("/board", { ...(signal && { signal }) })).data;
}

export async function addCard(title: string, column: string, note = "", signal?: AbortSignal): Promise<Card> {
  return (await http.post<Card>("/cards", { title, column, note }, { ...(signal && { signal }) })).data;
}

export async function moveCard(id: string, column: string, position?: number, signal?: AbortSignal): Promise<Card> {
  const place = { column, ...(position !== undefined && { position }) };
  return (await http.patch<Card>(`/cards/${id}`, place, { ...(signal && { signal }) })).data;
}

export async function deleteCard(id: string): Promise<void> {
  await http.delete(`/cards/${id}`);
}

/** `progress` is told of the part that was sent, from 0 to 1. What goes wrong is said with the name of the file. */
export async function addFile(id: string, file: File, progress: (part: number) => void): Promise<Card> {
  const form = new FormData();
  form.append("file", file);
  try {
    if (file.size > LARGEST_FILE) throw new Error(`It has ${inWords(file.size)}; a file may have ${inWords(LARGEST_FILE)}.`);
    const sent = await http.post<Card>(`/cards/${id}/files`, form, {
      onUploadProgress: ({ progress: part }) => progress(part ?? 0),
    });
    return sent.data;
  } catch (error) {
    throw new Error(`${file.name} was not sent. ${reason(error)}`, { cause: error });
  }
}

/** A size in bytes as people read it. */
export function inWords(size: number): string {
  if (size < 1000) return `${size} B`;
  return size < 1_000_000 ? `${Math.round(size / 1000)} kB` : `${Math.ceil(size / 10_000) / 100} MB`;
}

export const fileUrl = (card: Card, file: CardFile): string => `/api/cards/${card.id}/files/${file.id}`;

/** Each change of the board, until the result is called. */
export function onChange(changed: () => void): () => void {
  const events = new EventSource("/api/events");
  events.addEventListener("changed", changed);
  return () => events.close();
}

/** What went wrong, in words: the backend's own where it gave some. */
export function reason(error: unknown): string {
  if (!isAxiosError(error)) return error instanceof Error ? error.message : String(error);
  const said = error.response?.data as { error?: unknown; detail?: unknown } | undefined;
  const words = said?.error ?? said?.detail;
  return typeof words === "string" ? words : error.message;
}
