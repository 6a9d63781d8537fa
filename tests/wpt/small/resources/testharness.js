/** A harness of a few lines, with the names of the real one. */
const results = [], completions = [], tests = [];
const setup = () => {};
const add_result_callback = (tell) => results.push(tell);
const add_completion_callback = (tell) => completions.push(tell);
const test = (check, name) => promise_test(async () => check(), name);
const promise_test = (check, name) => tests.push([check, name]);
addEventListener("load", async () => {
  const done = [];
  for (const [check, name] of tests) {
    const one = { name, status: 0, message: null };
    await check().catch((error) => Object.assign(one, { status: 1, message: String(error) }));
    done.push(one);
    for (const tell of results) tell(one);
  }
  for (const tell of completions) tell(done, { status: 0, message: null });
});
