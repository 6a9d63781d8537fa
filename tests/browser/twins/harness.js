/** A page that tries things: it is run natively and in a view, and must see the same. */
const twins = {};

/** `run(see)` calls `see` with each thing that the page observes. */
function twin(name, run) {
  twins[name] = run;
}

/** What the page saw, without the origin that it runs at. A twin that throws or hangs has seen nothing: that is an error. */
async function observe(name) {
  const seen = [];
  document.getElementById("stage").replaceChildren();
  const hangs = new Promise((_, reject) => setTimeout(reject, 60000, new Error(`${name} hangs`)));
  await Promise.race([hangs, twins[name]((...values) => seen.push(values.length === 1 ? values[0] : values))]);
  const plain = JSON.stringify(seen, (_, value) => (value === undefined ? "undefined" : value));
  return JSON.parse(plain.replace(/https?:\/\/[^/"\\ ]+/g, "<origin>"));
}

/** Name and, where it is one, message of what a promise or a function fails with. */
async function failure(attempt) {
  try {
    await (typeof attempt === "function" ? attempt() : attempt);
    return "none";
  } catch (error) {
    return error instanceof DOMException ? error.name : error?.constructor?.name ?? String(error);
  }
}

const once = (target, type) => new Promise((resolve) => target.addEventListener(type, resolve, { once: true }));
