/** The board's tools for assistants (WebMCP): the same functions as the person's clicks. */
import { addCard, type Board, getBoard, moveCard, reason } from "./api";

interface Tool {
  name: string;
  title: string;
  description: string;
  inputSchema: object;
  annotations?: { readOnlyHint?: boolean };
  execute(input: Record<string, string | number>, options?: { signal?: AbortSignal }): Promise<unknown>;
}

interface ModelContext {
  registerTool(tool: Tool): unknown;
}

const COLUMN = { type: "string", enum: ["ideas", "doing", "done"], description: "Where the card goes" };

const TOOLS: Tool[] = [
  {
    name: "get_board",
    title: "Read the board",
    description: "All cards by column, each with its id, title, note and files.",
    inputSchema: { type: "object", properties: {} },
    annotations: { readOnlyHint: true },
    execute: (_, options) => told(async () => boardInWords(await getBoard(options?.signal))),
  },
  {
    name: "add_card",
    title: "Add a card",
    description: "Put a new card at the end of a column.",
    inputSchema: {
      type: "object",
      properties: { title: { type: "string", maxLength: 120 }, note: { type: "string", maxLength: 2000 }, column: COLUMN },
      required: ["title"],
    },
    execute: ({ title, note, column }, options) =>
      told(async () => {
        const card = await addCard(String(title), String(column ?? "ideas"), String(note ?? ""), options?.signal);
        return [`Added "${card.title}" (${card.id}) to ${card.column}.`, card];
      }),
  },
  {
    name: "move_card",
    title: "Move a card",
    description: "Put a card into another column, or at another place in its own.",
    inputSchema: {
      type: "object",
      properties: {
        card: { type: "string", description: "The id of a card, as get_board gives it" },
        column: COLUMN,
        position: { type: "integer", minimum: 0, description: "0 is the top; left out, the end" },
      },
      required: ["card", "column"],
    },
    execute: ({ card, column, position }, options) =>
      told(async () => {
        const place = position === undefined ? undefined : Number(position);
        const moved = await moveCard(String(card), String(column), place, options?.signal);
        return [`"${moved.title}" (${moved.id}) is in ${moved.column} now.`, moved];
      }),
  },
];

function boardInWords(board: Board): [string, object] {
  const lines = board.columns.map(({ title, cards }) => {
    const listed = cards.map((card) => `${card.title} (${card.id})`).join(", ");
    return `${title}: ${listed || "nothing"}.`;
  });
  return [lines.join("\n"), board];
}

async function told(action: () => Promise<[string, object]>): Promise<object> {
  try {
    const [text, structuredContent] = await action();
    return { content: [{ type: "text", text }], structuredContent };
  } catch (error) {
    return { isError: true, content: [{ type: "text", text: reason(error) }] };
  }
}

export async function offerTools(): Promise<void> {
  const { modelContext } = document as Document & { modelContext?: ModelContext };
  for (const tool of TOOLS) await modelContext?.registerTool(tool);
}
