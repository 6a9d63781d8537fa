/** The page: a column beside another, and what went wrong above them. */
import { useRef } from "react";
import type { Moved } from "./CardView";
import { ColumnView } from "./ColumnView";
import { useBoard } from "./useBoard";

export function BoardPage() {
  const { board, problem, run } = useBoard();
  const moved = useRef<Moved>(undefined);
  const count = board?.columns.reduce((sum, column) => sum + column.cards.length, 0) ?? 0;
  return (
    <main>
      <header>
        <h1>Tea board</h1>
        <p className="count">{board ? `${count} ${count === 1 ? "card" : "cards"}` : "Opening…"}</p>
      </header>
      {problem && (
        <p className="problem" role="alert">
          {problem}
        </p>
      )}
      <div className="columns" aria-busy={!board}>
        {board?.columns.map((column, at) => (
          <ColumnView
            key={column.id}
            column={column}
            before={board.columns[at - 1]}
            after={board.columns[at + 1]}
            run={run}
            moved={moved}
          />
        ))}
      </div>
    </main>
  );
}
