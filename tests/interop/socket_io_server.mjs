/** A server of socket.io that says to all what one says; it prints its port. */
import { createServer } from "node:http";
import { Server } from "socket.io";

const http = createServer();
const io = new Server(http);
io.on("connection", (socket) => {
  socket.on("say", (text, bytes, taken) => {
    io.emit("said", text, bytes);
    taken(bytes.length);
  });
  socket.on("leave", () => socket.disconnect(true));
});
http.listen(0, "127.0.0.1", () => console.log(http.address().port));
