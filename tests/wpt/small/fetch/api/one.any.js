promise_test(async () => {
  if ((await (await fetch("told.txt")).text()) !== "told") throw "other";
}, "reads");
