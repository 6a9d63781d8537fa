/** One card: it can be dragged, moved by its buttons, given files, and thrown away. */
import { type ChangeEvent, useState } from "react";
import { addFile, type Card, type CardFile, type Column, deleteCard, fileUrl, moveCard } from "./api";
import { CARD } from "./ColumnView";
import type { BoardState } from "./useBoard";

interface Properties {
  card: Card;
  before: Column | undefined;
  after: Column | undefined;
  run: BoardState["run"];
}

export function CardView({ card, before, after, run }: Properties) {
  const [dragged, setDragged] = useState(false);
  const [sent, setSent] = useState<number>();

  function attach(event: ChangeEvent<HTMLInputElement>): void {
    const [file] = event.target.files ?? [];
    event.target.value = "";
    if (!file) return;
    setSent(0);
    void run(() => addFile(card.id, file, setSent)).finally(() => setSent(undefined));
  }

  const moving = (column: Column | undefined, sign: string) => (
    <button
      disabled={!column}
      aria-label={column ? `Move ${card.title} to ${column.title}` : `${card.title} cannot move further`}
      onClick={() => column && void run(() => moveCard(card.id, column.id))}
    >
      {sign}
    </button>
  );

  return (
    <li
      className={dragged ? "dragged" : ""}
      data-card={card.id}
      draggable
      onDragStart={(event) => {
        event.dataTransfer.setData(CARD, card.id);
        event.dataTransfer.effectAllowed = "move";
        setDragged(true);
      }}
      onDragEnd={() => setDragged(false)}
    >
      <h3>{card.title}</h3>
      {card.note && <p>{card.note}</p>}
      {card.files.length > 0 && <Files card={card} />}
      {sent !== undefined && <progress aria-label="Sending the file" value={sent} />}
      <div className="actions">
        {moving(before, "←")}
        {moving(after, "→")}
        <label className="attach">
          <input type="file" aria-label={`Attach a file to ${card.title}`} onChange={attach} />
          Attach
        </label>
        <button
          className="delete"
          aria-label={`Throw ${card.title} away`}
          onClick={() => void run(() => deleteCard(card.id))}
        >
          ×
        </button>
      </div>
    </li>
  );
}

function Files({ card }: { card: Card }) {
  return (
    <div className="files">
      {card.files.map((file) => (
        <a key={file.id} href={fileUrl(card, file)} download={file.name} title={`${file.name}, ${sizeOf(file)}`}>
          {file.type.startsWith("image/") ? <img src={fileUrl(card, file)} alt={file.name} /> : file.name}
        </a>
      ))}
    </div>
  );
}

function sizeOf(file: CardFile): string {
  return file.size < 1024 ? `${file.size} B` : `${Math.round(file.size / 1024)} kB`;
}
