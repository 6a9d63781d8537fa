/** An app with TanStack Router. */
import { createRoot } from "react-dom/client";
import { createRootRoute, createRoute, createRouter, Link, Outlet, redirect, RouterProvider, useLocation, useNavigate } from "@tanstack/react-router";
import "./walk";

const root = createRootRoute({
  component: function App() {
    const { pathname, searchStr, hash } = useLocation();
    const navigate = useNavigate();
    return (
      <main>
        <Link id="home" to="/">Home</Link> <Link id="order" to="/orders/$id" params={{ id: "7" }} search={{ tab: "a" }} hash="top">Seven</Link> <Link id="old" to="/old">Old</Link>
        <Link id="nowhere" to="/no/such">Nowhere</Link> <button id="call" onClick={() => navigate({ to: "/orders/8" })}>Eight</button>
        <button id="replace" onClick={() => navigate({ to: "/orders/9", replace: true })}>Nine</button>
        <Outlet />
        <i>{JSON.stringify({ pathname, searchStr, hash })}</i>
      </main>
    );
  },
  notFoundComponent: () => <p>Not found</p>,
});
const start = createRoute({ getParentRoute: () => root, path: "/", component: () => <p>Start</p> });
const order = createRoute({
  getParentRoute: () => root,
  path: "/orders/$id",
  component: function Order() {
    const { id } = order.useParams();
    const { tab } = order.useSearch() as { tab?: string };
    const navigate = useNavigate();
    return <p>Order {id}, {tab} <button id="query" onClick={() => navigate({ to: ".", search: { tab: "b" } })}>b</button></p>;
  },
});
const old = createRoute({ getParentRoute: () => root, path: "/old", beforeLoad: () => { throw redirect({ to: "/orders/$id", params: { id: "1" } }); } });

createRoot(document.getElementById("root")!).render(<RouterProvider router={createRouter({ routeTree: root.addChildren([start, order, old]) })} />);
