/** The stories that the console can play, each for apps whose page has its tools. */
import type { Story } from "./story";

const CART: Story = {
  title: "A model goes shopping",
  tools: ["get_cart", "add_to_cart", "remove_from_cart"],
  steps: [
    { caption: "A model connects and asks which tools this page offers.", list: true },
    { caption: "It looks into the cart, through the page's own function.", tool: "get_cart" },
    {
      caption: "It adds a mug. The page's own fetch runs, and the gateway adds the token.",
      tool: "add_to_cart",
      arguments: { item_id: "mug", quantity: 1 },
    },
    {
      caption: "And two jars of honey. Watch the app: it is the same code as a click.",
      tool: "add_to_cart",
      arguments: { item_id: "honey", quantity: 2 },
    },
    { caption: "It checks the cart again.", tool: "get_cart" },
    {
      caption: "Now it wants to take the mug out again. That needs you.",
      tool: "remove_from_cart",
      arguments: { item_id: "mug" },
      needs: "Approve or decline it under Approvals.",
      otherwise: "It was not allowed to. The model is told:",
    },
    { caption: "That is the whole story. Every request stands in the timeline, under the call that caused it." },
  ],
};

export const STORIES: readonly Story[] = [CART];
