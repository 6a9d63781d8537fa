twin("axios", async (see) => {
  const { axios } = libraries;
  const got = await axios.get("/api/json", { params: { a: 1 } });
  see(got.status, got.data, got.headers["content-type"], got.request instanceof XMLHttpRequest);
  const progress = [];
  const posted = await axios.post("/api/echo", { b: 2 }, { headers: { "x-a": "1" }, onUploadProgress: ({ loaded, total }) => progress.push([loaded, total]) });
  see(posted.data, progress.at(-1));
  const failed = await axios.get("/api/status/404").catch((error) => error);
  see(failed.name, failed.code, failed.message, failed.response.status);
  const controller = new AbortController();
  setTimeout(() => controller.abort(), 30);
  see((await axios.get("/api/slow", { signal: controller.signal }).catch((error) => error)).code);
  see((await axios.get("/api/slow", { timeout: 50 }).catch((error) => error)).code);
  see((await axios.get("foo:bar").catch((error) => error)).code);
  see((await axios.get("/api/bytes", { responseType: "arraybuffer" })).data.byteLength);
  const form = await axios.postForm("/api/echo", { file: new File(["x"], "a.txt") });
  see(form.data.fields);
});

twin("jQuery", async (see) => {
  const { jQuery } = libraries;
  see(await jQuery.getJSON("/api/json"), await jQuery.post("/api/echo", { a: 1 }), await jQuery.ajax(`${location.origin}/api/echo`));
  see(await jQuery.ajax("/api/status/500").then(() => 0, ({ status, statusText }) => [status, statusText]));
  see(await jQuery.ajax("/api/slow", { timeout: 50 }).then(() => 0, (_, text) => text));
});

twin("ky", async (see) => {
  const { ky } = libraries;
  const prefix = new Request("/").url;
  const api = ky.create({ prefix, retry: 0 });
  see(await api.get("api/json").json(), await api.post("api/echo", { json: { a: 1 } }).json());
  const failed = await api.get("api/status/404").catch((error) => error);
  see(failed.name, failed.response.status);
  see((await api.get("api/slow", { timeout: 50 }).catch((error) => error)).name);
});

twin("htmx", async (see) => {
  const { htmx } = libraries;
  const stage = document.getElementById("stage");
  stage.innerHTML = '<div id="into"></div><button hx-post="/api/fragment" hx-vals=\'{"a": "1"}\' hx-target="#into">go</button>';
  htmx.process(stage);
  const events = [];
  for (const type of ["htmx:before:request", "htmx:after:request", "htmx:after:swap"]) stage.addEventListener(type, ({ type: name }) => events.push(name));
  stage.querySelector("button").click();
  await once(stage, "htmx:after:settle");
  see(stage.querySelector("#into").innerHTML, events);
});

twin("graphql-request", async (see) => {
  const { GraphQLClient, gql } = libraries;
  const client = new GraphQLClient(new Request("/api/graphql").url);
  see(await client.request(gql`query Item($id: ID!) { item(id: $id) { name } }`, { id: "7" }));
  see((await client.request("{ broken }").catch((error) => error)).response.errors);
});

twin("Hono's client", async (see) => {
  const client = libraries.hc(new Request("/").url);
  const response = await client.api.items[":id"].$put({ param: { id: "7" }, json: { name: "tea" } });
  see(response.status, await response.json());
});

twin("TanStack Query", async (see) => {
  const { QueryClient } = libraries;
  const client = new QueryClient({ defaultOptions: { queries: { retry: 0 } } });
  const queryFn = async ({ signal }) => (await fetch("/api/json", { signal })).json();
  see(await Promise.all([1, 2].map(() => client.fetchQuery({ queryKey: ["json"], queryFn }))));
  const slow = client.fetchQuery({ queryKey: ["slow"], queryFn: ({ signal }) => fetch("/api/slow", { signal }) });
  setTimeout(() => client.cancelQueries(), 30);
  see(await failure(slow));
});
