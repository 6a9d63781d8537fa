/** Tells the harness, on the console, what each subtest of a page came to, and which of its documents says so. */
setup({ output: false, timeout_multiplier: 2 });
{
  const { debug } = console;
  const who = `${Math.random()}`;
  const tell = (message) => debug(`wpt:${JSON.stringify([who, message])}`);
  const of = ({ name, status, message }) => [name, status, message];
  add_result_callback((test) => tell({ test: of(test) }));
  add_completion_callback((tests, { status, message }) => tell({ tests: tests.map(of), status, message }));
}
