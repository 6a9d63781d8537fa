/** One card: it can be dragged, moved by its buttons, given files, and thrown away. */
import { type ChangeEvent, type RefObject, useLayoutEffect, useRef, useState } from "react";
import { addFile, type Card, type CardFile, type Column, deleteCard, fileUrl, inWords, moveCard } from "./api";
import { CARD } from "./ColumnView";
import type { BoardState } from "./useBoard";

interface Properties {
  card: Card;
  before: Column | undefined;
  after: Column | undefined;
  run: BoardState["run"];
  moved: RefObject<Moved | undefined>;
}

/** What was moved by its buttons last. In another column the card is another element, which takes up the focus. */
export interface Moved {
  card: string;
  way: "back" | "forth";
}

export function CardView({ card, before, after, run, moved }: Properties) {
  const item = useRef<HTMLLIElement>(null);
  const buttons = useRef<HTMLDivElement>(null);
  const [dragged, setDragged] = useState(false);
  const [sent, setSent] = useState<number>();

  useLayoutEffect(() => {
    const [actions, last] = [buttons.current, moved.current];
    if (last?.card !== card.id || document.activeElement !== document.body) return;
    const enabled = (selector: string) => actions?.querySelector<HTMLElement>(`${selector}:enabled`);
    (enabled(`.${last.way}`) ?? enabled("button"))?.focus();
  }, [moved, card.id]);

  // One that is thrown away hands the focus to its neighbour, the last one to the line for a new card.
  useLayoutEffect(() => {
    const gone = item.current;
    return () => {
      if (!gone?.contains(document.activeElement) || moved.current?.card === card.id) return;
      const beside = (gone.nextElementSibling ?? gone.previousElementSibling)?.querySelector<HTMLElement>(".delete");
      (beside ?? gone.closest("section")?.querySelector<HTMLElement>("form input"))?.focus();
    };
  }, [moved, card.id]);

  function attach(event: ChangeEvent<HTMLInputElement>): void {
    const [file] = event.target.files ?? [];
    event.target.value = "";
    if (!file) return;
    setSent(0);
    void run(() => addFile(card.id, file, setSent)).finally(() => setSent(undefined));
  }

  const moving = (column: Column | undefined, way: Moved["way"], sign: string) => (
    <button
      className={way}
      disabled={!column}
      aria-label={column ? `Move ${card.title} to ${column.title}` : `${card.title} cannot move further`}
      onClick={() => {
        if (!column) return;
        moved.current = { card: card.id, way };
        void run(() => moveCard(card.id, column.id));
      }}
    >
      {sign}
    </button>
  );

  return (
    <li
      ref={item}
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
      <div className="actions" ref={buttons}>
        {moving(before, "back", "←")}
        {moving(after, "forth", "→")}
        <label className="attach">
          <input type="file" aria-label={`Attach a file to ${card.title}`} onChange={attach} />
          Attach
        </label>
        <button
          className="delete"
          aria-label={`Throw ${card.title} away`}
          onClick={() => {
            moved.current = undefined;
            void run(() => deleteCard(card.id));
          }}
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
        <a
          key={file.id}
          href={fileUrl(card, file)}
          download={file.name}
          title={`${file.name}, ${inWords(file.size)}`}
          draggable={false}
        >
          <Look file={file} url={fileUrl(card, file)} />
        </a>
      ))}
    </div>
  );
}

/** A picture as such where it can be had, all else by its name. */
function Look({ file, url }: { file: CardFile; url: string }) {
  const [missing, setMissing] = useState(false);
  if (missing || !file.type.startsWith("image/")) return file.name;
  return <img src={url} alt={file.name} draggable={false} onError={() => setMissing(true)} />;
}
