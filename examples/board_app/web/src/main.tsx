/** Shows the board, and offers its tools to assistants that the browser knows. */
import { createRoot } from "react-dom/client";
import { BoardPage } from "./BoardPage";
import "./board.css";
import { offerTools } from "./tools";

const place = document.getElementById("board");
if (!place) throw new Error("the page has no place for the board");
createRoot(place).render(<BoardPage />);
void offerTools();
