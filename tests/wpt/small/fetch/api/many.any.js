// META: variant=?1
// META: variant=?2
test(() => {
  if (!["?1", "?2"].includes(location.search)) throw location.search;
}, "variant");
