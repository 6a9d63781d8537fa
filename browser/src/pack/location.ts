/**
 * Rewrites the reads of `location` in the scripts of a page.
 *
 * Run by `node location.mjs --lines`: reads `Script`s as JSON from each line, and writes the result of each, null if it
 * is unchanged.
 */
import { createInterface } from "node:readline";
import { rewriteLocation, type Script } from "../libraries/location-reads";

// Answers each line of standard input with a line.
for await (const line of process.argv[2] === "--lines" ? createInterface({ input: process.stdin }) : []) {
  process.stdout.write(`${JSON.stringify((JSON.parse(line) as Script[]).map((script) => rewriteLocation(script) ?? null))}\n`);
}
