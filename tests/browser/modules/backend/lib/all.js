export * from "./counter.js";
export * from "./other.js";
export * as counter from "./counter.js";
export { default as twice } from "./counter.js";
export const count = "own";
