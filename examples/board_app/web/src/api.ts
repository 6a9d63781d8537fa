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

/** `progress` is told of the part that was sent, from 0 to 1. */
export async function addFile(id: string, file: File, progress: (part: number) => void): Promise<Card> {
  const form = new FormData();
  form.append("file", file);
  const sent = await http.post<Card>(`/cards/${id}/files`, form, {
    onUploadProgress: ({ progress: part }) => progress(part ?? 0),
  });
  return sent.data;
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
