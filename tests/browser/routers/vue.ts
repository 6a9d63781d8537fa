/** An app with `createWebHistory` of vue-router. */
import { createApp, h } from "vue";
import { createRouter, createWebHistory, RouterLink, RouterView, useRoute, useRouter } from "vue-router";
import "./walk";

const Order = { setup: () => {
  const route = useRoute(), router = useRouter();
  return () => h("p", [`Order ${route.params["id"]}, ${route.query["tab"]}`, h("button", { id: "query", onClick: () => router.push({ query: { tab: "b" } }) }, "b")]);
} };
const says = (text: string) => ({ render: () => h("p", text) });
const router = createRouter({
  history: createWebHistory(),
  routes: [
    { path: "/", component: says("Start") },
    { path: "/orders/:id", component: Order },
    { path: "/old", redirect: "/orders/1" },
    { path: "/:rest(.*)*", component: says("Not found") },
  ],
});
const App = { setup: () => {
  const route = useRoute();
  const link = (id: string, to: string) => h(RouterLink, { id, to }, () => id);
  const button = (id: string, onClick: () => unknown) => h("button", { id, onClick }, id);
  return () => h("main", [
    link("home", "/"), link("order", "/orders/7?tab=a#top"), link("old", "/old"), link("nowhere", "/no/such"),
    button("call", () => router.push("/orders/8")), button("replace", () => router.replace("/orders/9")), h(RouterView), h("i", route.fullPath),
  ]);
} };

createApp(App).use(router).mount("#root");
