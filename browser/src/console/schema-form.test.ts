import { expect, test } from "vitest";
import { fieldsOf, initialValues, toArguments, WHOLE } from "./schema-form";
import type { JsonObject } from "./types";

const SCHEMA: JsonObject = {
  type: "object",
  properties: {
    item_id: { type: "string", description: "Which product" },
    quantity: { type: "integer", minimum: 1, maximum: 9, default: 1 },
    price: { type: ["number", "null"] },
    gift: { type: "boolean" },
    size: { enum: ["S", "M"] },
    tags: { type: "array", items: { type: "string" } },
  },
  required: ["item_id"],
};

function fill(schema: JsonObject, values: Record<string, string>) {
  const fields = fieldsOf(schema);
  return toArguments(fields, { ...initialValues(fields), ...values });
}

test("each property becomes a field of its kind", () => {
  expect(fieldsOf(SCHEMA).map((field) => field.kind)).toEqual([
    "text",
    "integer",
    "number",
    "boolean",
    "choice",
    "json",
  ]);
});

test("the schema's words go to the form", () => {
  const [item, quantity] = fieldsOf(SCHEMA);
  expect(item).toMatchObject({ label: "item_id", description: "Which product", required: true, initial: "" });
  expect(quantity).toMatchObject({ hint: "1 to 9", initial: "1", required: false });
});

test("arguments have the types of the schema, and empty fields are left out", () => {
  const values = { item_id: "mug", quantity: "2", gift: "1", size: "0", tags: '["a"]' };
  expect(fill(SCHEMA, values)).toEqual({
    ok: true,
    arguments: { item_id: "mug", quantity: 2, gift: false, size: "S", tags: ["a"] },
  });
});

test.each([
  [{ item_id: " " }, { item_id: "Needed" }],
  [{ item_id: "a", quantity: "1.5" }, { quantity: "A whole number, please" }],
  [{ item_id: "a", quantity: "10" }, { quantity: "At most 9" }],
  [{ item_id: "a", price: "x" }, { price: "Not a number" }],
  [{ item_id: "a", tags: "[" }, { tags: "Not JSON" }],
])("%o is refused with %o", (values, errors) => {
  expect(fill(SCHEMA, values)).toEqual({ ok: false, errors });
});

test("a choice of constants shows their titles and gives their values", () => {
  const schema = {
    properties: {
      speed: {
        oneOf: [
          { const: 1, title: "slow" },
          { const: 2, title: "fast" },
        ],
        default: 2,
      },
    },
  };
  const [field] = fieldsOf(schema);
  expect(field).toMatchObject({ kind: "choice", initial: "1", choices: [{ label: "slow" }, { label: "fast" }] });
  expect(fill(schema, { speed: "0" })).toEqual({ ok: true, arguments: { speed: 1 } });
});

test("a schema without properties is one JSON field, an empty one no field", () => {
  expect(fieldsOf({ anyOf: [{ type: "object" }] }).map((field) => field.name)).toEqual([WHOLE]);
  expect(fieldsOf({ type: "object" })).toEqual([]);
  expect(fill({ additionalProperties: { type: "number" } }, { [WHOLE]: '{"a": 1}' })).toEqual({
    ok: true,
    arguments: { a: 1 },
  });
  expect(fill({ additionalProperties: { type: "number" } }, { [WHOLE]: "[1]" })).toMatchObject({ ok: false });
});
