/** An app with the `BrowserRouter` of React Router. */
import { createRoot } from "react-dom/client";
import { BrowserRouter, Link, Navigate, NavLink, Route, Routes, useLocation, useNavigate, useParams, useSearchParams } from "react-router";
import "./walk";

function Order() {
  const { id } = useParams();
  const [query, setQuery] = useSearchParams();
  return <p>Order {id}, {query.get("tab")} <button id="query" onClick={() => setQuery({ tab: "b" })}>b</button></p>;
}

function App() {
  const { pathname, search, hash, state } = useLocation();
  const navigate = useNavigate();
  return (
    <main>
      <NavLink id="home" to="/">Home</NavLink> <Link id="order" to="/orders/7?tab=a#top">Seven</Link> <Link id="old" to="/old">Old</Link>
      <Link id="nowhere" to="/no/such">Nowhere</Link> <button id="call" onClick={() => navigate("/orders/8", { state: { from: 7 } })}>Eight</button>
      <button id="replace" onClick={() => navigate("/orders/9", { replace: true })}>Nine</button>
      <Routes>
        <Route index element={<p>Start</p>} />
        <Route path="/orders/:id" element={<Order />} />
        <Route path="/old" element={<Navigate to="/orders/1" replace />} />
        <Route path="*" element={<p>Not found</p>} />
      </Routes>
      <i>{JSON.stringify({ pathname, search, hash, state })}</i>
    </main>
  );
}

createRoot(document.getElementById("root")!).render(<BrowserRouter><App /></BrowserRouter>);
