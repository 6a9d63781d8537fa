/** One column: its cards, a place to drop others, and a line for a new one. */
import { type DragEvent, type FormEvent, type RefObject, useState } from "react";
import { addCard, type Column, LONGEST_TITLE, moveCard } from "./api";
import { CardView, type Moved } from "./CardView";
import type { BoardState } from "./useBoard";

interface Properties {
  column: Column;
  before: Column | undefined;
  after: Column | undefined;
  run: BoardState["run"];
  moved: RefObject<Moved | undefined>;
}

export const CARD = "text/plain";

export function ColumnView({ column, before, after, run, moved }: Properties) {
  const [title, setTitle] = useState("");
  const [over, setOver] = useState(false);
  const beyond = [...title.trim()].length - LONGEST_TITLE;
  const ready = title.trim() !== "" && beyond <= 0;

  function add(event: FormEvent): void {
    event.preventDefault();
    if (!ready) return;
    void run(() => addCard(title, column.id)).then((done) => done && setTitle(""));
  }

  function drop(event: DragEvent): void {
    event.preventDefault();
    setOver(false);
    const card = event.dataTransfer.getData(CARD);
    if (card) void run(() => moveCard(card, column.id, placeOf(event)));
  }

  return (
    <section
      className={over ? "column over" : "column"}
      aria-label={column.title}
      data-column={column.id}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => event.currentTarget.contains(event.relatedTarget as Node | null) || setOver(false)}
      onDrop={drop}
    >
      <h2>
        {column.title} <span>{column.cards.length}</span>
      </h2>
      <ul>
        {column.cards.map((card) => (
          <CardView key={card.id} card={card} before={before} after={after} run={run} moved={moved} />
        ))}
      </ul>
      <form onSubmit={add}>
        <input
          value={title}
          placeholder="A new card"
          aria-invalid={beyond > 0}
          aria-label={`A new card in ${column.title}`}
          onChange={(event) => setTitle(event.target.value)}
        />
        <button disabled={!ready}>Add</button>
      </form>
      {beyond > 0 && (
        <p className="wrong" role="alert">
          A title may have {LONGEST_TITLE} characters; this one has {beyond} more.
        </p>
      )}
    </section>
  );
}

/** Before the first card whose middle is below the pointer; undefined is the end. */
function placeOf(event: DragEvent): number | undefined {
  const cards = [...event.currentTarget.querySelectorAll<HTMLElement>("li:not(.dragged)")];
  const at = cards.findIndex((card) => {
    const { top, height } = card.getBoundingClientRect();
    return event.clientY < top + height / 2;
  });
  return at < 0 ? undefined : at;
}
