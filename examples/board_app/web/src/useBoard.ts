/** The board as it is now: asked for at first, and again whenever the backend says that it changed. */
import { useCallback, useEffect, useState } from "react";
import { type Board, getBoard, onChange, reason } from "./api";

export interface BoardState {
  board: Board | undefined;
  problem: string;
  /** Do something with the board; what goes wrong becomes `problem`. Gives whether it was done. */
  run(action: () => Promise<unknown>): Promise<boolean>;
}

export function useBoard(): BoardState {
  const [board, setBoard] = useState<Board>();
  const [problem, setProblem] = useState("");

  const refresh = useCallback(async () => {
    try {
      const found = await getBoard();
      // Answers may overtake each other.
      setBoard((before) => (before && before.revision > found.revision ? before : found));
      setProblem("");
    } catch (error) {
      setProblem(reason(error));
    }
  }, []);

  const run = useCallback(
    async (action: () => Promise<unknown>) => {
      try {
        await action();
      } catch (error) {
        setProblem(reason(error));
        return false;
      }
      await refresh();
      return true;
    },
    [refresh],
  );

  useEffect(() => {
    void refresh();
    return onChange(() => void refresh());
  }, [refresh]);

  return { board, problem, run };
}
