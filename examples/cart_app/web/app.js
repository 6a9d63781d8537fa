/**
 * The page of the shop: it shows the shelf and the cart. What a person can do with a click, an assistant can do
 * with a tool (WebMCP, `document.modelContext`); both go through `perform`.
 */

const element = (id) => document.getElementById(id);
const ITEM_ID = /^[a-z0-9-]+$/;
const MOST = 99;

const shelf = new Map(); // item_id -> {item_id, name, description, price}
let currency = "EUR";

const money = (cents) => new Intl.NumberFormat("en", { style: "currency", currency }).format(cents / 100);
const pieces = (cart) => cart.items.reduce((sum, item) => sum + item.quantity, 0);
const nameOf = (itemId) => shelf.get(itemId)?.name ?? itemId;

/** Something that did not work, in words for a person. */
class ShopError extends Error {}

/** Something that is accepted, and not done yet (202). */
class Later extends ShopError {}

// ── the shop's API ──────────────────────────────────────────────────────────────────────────────────────────────────

async function request(method, path, { body, signal } = {}) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  let response;
  try {
    response = await fetch(`/api/${path}`, { method, headers, body: JSON.stringify(body), signal });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new ShopError("The shop cannot be reached. Please check the connection and try again.", { cause });
  }
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new ShopError(inWords(response, answer));
  if (response.status === 202) throw new Later(inWords(response, answer));
  if (answer === null) throw new ShopError("The shop gave an answer that this page does not understand.");
  return answer;
}

/** What an error response says: `detail` of a problem (RFC 9457), or the shop's own `message`. */
function inWords(response, answer) {
  const said = answer?.detail ?? answer?.message ?? answer?.title;
  if (typeof said === "string" && said !== "") return said;
  if (response.status === 401) return "You are not signed in.";
  if (response.status === 403) return "This is not allowed.";
  if (response.status === 429) return "That was too fast. Please wait a moment and try again.";
  return `The shop has a problem (${response.status}). Please try again.`;
}

function itemPath(itemId) {
  if (typeof itemId !== "string" || !ITEM_ID.test(itemId)) throw new ShopError("item_id must be the id of a product.");
  return `cart/${itemId}`;
}

// ── what can be done: each gives the new cart, what changed in it, and a sentence ───────────────────────────────────

const actions = {
  async add_to_cart({ item_id, quantity = 1 }, signal) {
    const cart = await request("POST", "cart", { body: { item_id, quantity }, signal });
    return { cart, changed: item_id, text: `Added ${quantity} × ${nameOf(item_id)}.` };
  },

  async get_cart(_input, signal) {
    return { cart: await request("GET", "cart", { signal }), text: "" };
  },

  async set_quantity({ item_id, quantity }, signal) {
    const cart = await request("PUT", itemPath(item_id), { body: { quantity }, signal });
    return { cart, changed: item_id, text: `${nameOf(item_id)}: now ${quantity}.` };
  },

  async remove_from_cart({ item_id }, signal) {
    const cart = await request("DELETE", itemPath(item_id), { signal });
    return { cart, text: `Removed ${nameOf(item_id)}.` };
  },

  async checkout(_input, signal) {
    const order = await request("POST", "checkout", { signal });
    const text = `Order ${order.order_number} is placed: ${money(order.total)}.`;
    return { cart: { items: [], total: 0 }, order, text };
  },
};

/** Do one of the actions, and show it: the one way for clicks and for tools. */
async function perform(name, input = {}, signal = undefined) {
  const places = placesOf(name, input);
  const waiting = name !== "get_cart" && setTimeout(() => say("Waiting for the shop to confirm…", "wait"), 2500);
  places.forEach((place) => place.setAttribute("aria-busy", "true"));
  try {
    const done = await actions[name](input, signal);
    if (done.order) showOrder(done.order);
    showCart(done.cart, done.changed);
    if (done.text) say(done.text);
    return done;
  } catch (error) {
    say(signal?.aborted ? "" : error.message, error instanceof Later ? "done" : "error");
    throw error;
  } finally {
    clearTimeout(waiting);
    places.forEach((place) => place.removeAttribute("aria-busy"));
  }
}

/** The elements that are busy while an action runs. */
function placesOf(name, input) {
  if (name === "checkout") return [element("checkout")];
  const places = element(name === "add_to_cart" ? "products" : "cart-lines").children;
  return [...places].filter((at) => (at.dataset.itemId ?? at.dataset.cartItem) === input.item_id && input.item_id);
}

// ── showing ─────────────────────────────────────────────────────────────────────────────────────────────────────────

function fromTemplate(id, attribute, itemId) {
  const made = element(id).content.firstElementChild.cloneNode(true);
  made.setAttribute(attribute, itemId);
  const picture = [...element("pictures").content.children].find((at) => at.dataset.picture === itemId);
  if (picture) made.querySelector(".picture").append(picture.cloneNode(true));
  return made;
}

function showShelf() {
  const cards = [...shelf.values()].map((product) => {
    const card = fromTemplate("card", "data-item-id", product.item_id);
    card.querySelector("[data-name]").textContent = product.name;
    card.querySelector("[data-description]").textContent = product.description;
    card.querySelector("[data-price]").textContent = money(product.price);
    card.querySelector("[data-add]").setAttribute("aria-label", `Add ${product.name} to the cart`);
    return card;
  });
  element("products").replaceChildren(...cards);
}

function newLine(item) {
  const line = fromTemplate("line", "data-cart-item", item.item_id);
  line.querySelector("[data-name]").textContent = item.name;
  line.querySelector(".quantity").setAttribute("aria-label", `Quantity of ${item.name}`);
  line.querySelector("[data-remove]").setAttribute("aria-label", `Remove ${item.name}`);
  line.addEventListener("animationend", () => line.classList.remove("changed"));
  return line;
}

function fillLine(line, item) {
  const [less, more] = [line.querySelector("[data-decrease]"), line.querySelector("[data-increase]")];
  line.querySelector("[data-each]").textContent = item.quantity > 1 ? `${money(item.price)} each` : "";
  line.querySelector("[data-quantity]").textContent = item.quantity;
  line.querySelector("[data-line-total]").textContent = money(item.price * item.quantity);
  const focused = [less, more].indexOf(document.activeElement);
  less.disabled = item.quantity <= 1;
  more.disabled = item.quantity >= MOST;
  if (focused === 0 && less.disabled) more.focus();
  if (focused === 1 && more.disabled) less.focus();
}

/** Draw the cart. Lines that stay are kept as they are, so the keyboard's place is not lost. */
function showCart(cart, changed) {
  const lines = element("cart-lines");
  const old = new Map([...lines.children].map((line) => [line.dataset.cartItem, line]));
  for (const [place, item] of cart.items.entries()) {
    const line = old.get(item.item_id) ?? newLine(item);
    old.delete(item.item_id);
    fillLine(line, item);
    if (lines.children[place] !== line) lines.insertBefore(line, lines.children[place] ?? null);
    if (item.item_id === changed) highlight(line);
  }
  const focusIsLost = [...old.values()].some((line) => line.contains(document.activeElement));
  old.forEach((line) => line.remove());
  if (focusIsLost) element("cart-title").focus({ preventScroll: true });
  element("cart-count").textContent = pieces(cart);
  element("cart-total").textContent = money(cart.total);
  element("cart-empty").hidden = cart.items.length > 0 || !element("order").hidden;
  element("checkout").disabled = cart.items.length === 0;
  if (cart.items.length > 0) element("order").hidden = true;
}

function highlight(line) {
  line.classList.remove("changed");
  void line.offsetWidth; // starts the animation anew where it still runs
  line.classList.add("changed");
}

function showOrder(order) {
  element("order").hidden = false;
  element("order-text").textContent = `Your order ${order.order_number} for ${money(order.total)} is placed.`;
  if (document.activeElement === element("checkout")) element("order").focus({ preventScroll: true });
}

let hiding;

/** Tell the person: kind is "done", "wait" or "error"; an error stays until the next word. */
function say(text, kind = "done") {
  clearTimeout(hiding);
  element("message").textContent = text;
  element("toast").dataset.kind = kind;
  element("dismiss").hidden = text === "";
  if (kind === "done" && text !== "") hiding = setTimeout(() => say(""), 5000);
}

// ── clicks ──────────────────────────────────────────────────────────────────────────────────────────────────────────

/** Run an action for a click, unless its place is busy; what goes wrong is said by `perform`. */
function act(place, name, input) {
  if (place.getAttribute("aria-busy") === "true") return;
  perform(name, input).catch((error) => {
    if (!(error instanceof ShopError)) throw error;
  });
}

element("products").addEventListener("click", (event) => {
  const card = event.target.closest("[data-item-id]");
  if (event.target.closest("[data-add]")) act(card, "add_to_cart", { item_id: card.dataset.itemId });
});

element("cart-lines").addEventListener("click", (event) => {
  const line = event.target.closest("[data-cart-item]");
  if (line === null) return;
  const item_id = line.dataset.cartItem;
  const quantity = Number(line.querySelector("[data-quantity]").textContent);
  if (event.target.closest("[data-remove]")) act(line, "remove_from_cart", { item_id });
  if (event.target.closest("[data-decrease]")) act(line, "set_quantity", { item_id, quantity: quantity - 1 });
  if (event.target.closest("[data-increase]")) act(line, "set_quantity", { item_id, quantity: quantity + 1 });
});

element("checkout").addEventListener("click", () => act(element("checkout"), "checkout", {}));
element("dismiss").addEventListener("click", () => say(""));
element("retry").addEventListener("click", openShop);
element("to-cart").addEventListener("click", () => {
  element("cart-title").focus({ preventScroll: true });
  element("cart-title").parentElement.scrollIntoView({ block: "start" });
});

// ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────────────

function tools() {
  const onShelf = [...shelf.values()].map((product) => `${product.item_id} (${product.name}, ${money(product.price)})`);
  const products = onShelf.length > 0 ? ` On the shelf: ${onShelf.join(", ")}.` : "";
  const oneOf = shelf.size > 0 ? { enum: [...shelf.keys()] } : {};
  return [
    {
      name: "add_to_cart",
      title: "Add to cart",
      description: `Put a product into the cart of this shop.${products}`,
      inputSchema: {
        type: "object",
        properties: {
          item_id: { type: "string", description: "Id of the product", ...oneOf },
          quantity: { type: "integer", minimum: 1, maximum: MOST, default: 1, description: "How many" },
        },
        required: ["item_id"],
      },
    },
    {
      name: "get_cart",
      title: "Show cart",
      description: "What is in the cart: products, quantities, prices and the total, in cents.",
      inputSchema: { type: "object", properties: {} },
      annotations: { readOnlyHint: true },
    },
    {
      name: "remove_from_cart",
      title: "Remove from cart",
      description: "Take a product out of the cart, however many there are.",
      inputSchema: {
        type: "object",
        properties: { item_id: { type: "string", description: "Id of a product in the cart" } },
        required: ["item_id"],
      },
    },
    {
      name: "checkout",
      title: "Check out",
      description: "Order what is in the cart. This spends the person's money.",
      inputSchema: { type: "object", properties: {} },
    },
  ];
}

/** The cart in a sentence, for an assistant. */
function summary(cart) {
  if (cart.items.length === 0) return "The cart is empty.";
  const items = cart.items.map((item) => `${item.quantity} × ${item.name} (${item.item_id})`);
  return `In the cart: ${items.join(", ")}; total ${money(cart.total)}.`;
}

async function runTool(name, input, signal) {
  try {
    const { cart, order, text } = await perform(name, input ?? {}, signal);
    const said = order ? text : `${text} ${summary(cart)}`.trim();
    return { content: [{ type: "text", text: said }], structuredContent: order ?? cart };
  } catch (error) {
    if (signal?.aborted) throw error;
    return { isError: true, content: [{ type: "text", text: error.message }] };
  }
}

async function offerTools() {
  if (!document.modelContext) return;
  for (const tool of tools()) {
    const execute = (input, options) => runTool(tool.name, input, options?.signal);
    try {
      await document.modelContext.registerTool({ ...tool, execute });
    } catch (error) {
      console.warn(`The tool ${tool.name} could not be offered:`, error);
    }
  }
}

// ── opening ─────────────────────────────────────────────────────────────────────────────────────────────────────────

async function openShop() {
  element("closed").hidden = true;
  element("products").hidden = false;
  try {
    const [stock, cart] = await Promise.all([request("GET", "products"), request("GET", "cart")]);
    currency = stock.currency;
    stock.products.forEach((product) => shelf.set(product.item_id, product));
    showShelf();
    showCart(cart);
  } catch (error) {
    element("products").hidden = true;
    element("closed").hidden = false;
    element("closed-reason").textContent = error.message;
  } finally {
    element("products").removeAttribute("aria-busy");
  }
}

await openShop();
await offerTools();
