/** The bridge protocol without I/O, as in `gateway/mux`; `tests/mux/vectors.json` is shared by both. */
export { BODY_LIMIT, namedBody as bodyNamed, isBodyId, isLarge, joinBody, splitBody } from "./bodies";
export { Connection } from "./connection";
export { MuxError } from "./errors";
export { decode, encode, FRAME_LIMIT, GESTURE_LIMIT } from "./frames";
export type { AppSource, Channel, Frame, MessageFrame } from "./frames";
export { BAD_MESSAGE, BUSY, failure, has, idOf, INTERNAL, readMessage } from "./jsonrpc";
export type { Id, MessageKind } from "./jsonrpc";
export { IN_FLIGHT_LIMIT } from "./rules";
export type { Role } from "./rules";
export { byteLength, isObject } from "./text";
export type { Json, JsonObject } from "./text";
