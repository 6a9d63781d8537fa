twin("code: made of a text", async (see) => {
  see(new Function("a", "b = 2", "return a + b")(1), Function("return this")() === window, String(new Function()));
  see((() => {}) instanceof Function, (() => {}).constructor === Function, [...(function* () {}).constructor("yield 1; yield 2")()]);
  const Async = (async () => {}).constructor;
  see(await new Async("given", "return await given")(Promise.resolve(3)), Async.name, Async.prototype.constructor === Async);
  see((0, eval)("1 + 2"), (0, eval)("({ a: 1 })").a, (0, eval)("this") === window, eval(5));
  see((0, eval)("3 + 4;\n"));
  (0, eval)("function declared() { return 'declared' }");
  see(declared());
  const heard = [], hear = ({ message }) => heard.push(message);
  addEventListener("error", hear, true);
  (0, eval)("var inner; try { new Function('return }') } catch (error) { inner = error.name }");
  see(inner);
  see(await failure(() => new Function("return }")), await failure(() => (0, eval)("nowhere.at")), await failure(() => (0, eval)("1 +")));
  see(await failure(() => (0, eval)("throw new RangeError()")), await failure(() => new Function("throw new URIError()")()));
  removeEventListener("error", hear, true);
  see(heard);
  await new Promise((resolve) => {
    window.rung = resolve;
    setTimeout("var afterwards = 6; rung()", 1);
  });
  see(afterwards);
  let timer;
  await new Promise((resolve) => {
    window.rung = resolve;
    timer = setInterval("rung()", 1);
  });
  clearInterval(timer);
  see(await new Promise((resolve) => { setTimeout(resolve, 1, "given"); }));
  see(await new Promise((resolve) => {
    onerror = (message, _, __, ___, { name }) => {
      onerror = null;
      resolve([message, name]);
      return true;
    };
    setTimeout("throw new RangeError('late')");
  }));
});

twin("code: text that a page reads of its own script", async (see) => {
  const tag = (strings, ...values) => [[...strings], [...strings.raw], values, Object.isFrozen(strings), Object.isFrozen(strings.raw)];
  const owner = { tag(strings) { return [this === owner, strings.raw[0]]; } };
  see(String.raw`</script>`, String.raw`<!-- <script>`, "</script>", `</script>${1}`, String.raw`a</script>${"x", "y"}b${`<script>${2}`}c\n</SCRIPT>\u0041`);
  see(tag`\user</script>\x3c`, tag`plain`, tag`a</script>
b`, owner.tag`</script>`, owner["tag"]`<script>${1}`, (tag)`<!--`);
  const site = () => ((strings) => strings)`</script>`;
  see(site() === site(), /<script>[/"</script>"]/gi.source, /<!--/.flags, /a<\/script>/.source, ((x) => /<script>/.test(x))("<script>"));
});
