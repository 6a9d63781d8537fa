import { expect, test } from "vitest";
import { withSerializedForms, serializeForm } from "./form-data";

test("a form with files is written as browsers write it", async () => {
  const form = new FormData();
  form.append('a"\n', "one\ntwo");
  form.append("file", new File([new Uint8Array([0, 13, 10, 255])], 'ü".bin'));
  const blob = serializeForm(form);
  const read = await new Response(blob, { headers: { "content-type": blob.type } }).formData();
  const file = read.get("file") as File;
  expect(read.get('a"\r\n') ?? read.get("a%22%0D%0A")).toBe("one\r\ntwo");
  expect([file.type, [...new Uint8Array(await file.arrayBuffer())]]).toEqual(["application/octet-stream", [0, 13, 10, 255]]);
  expect(await blob.text()).toContain('filename="ü%22.bin"');
});

test("only a form with files is written so, and whatever else a request is given stays", async () => {
  const Made = withSerializedForms(Request);
  const form = new FormData();
  const type = (): string | null => new Made("https://cart.example/", { method: "POST", body: form, headers: { "x-a": "1" } }).headers.get("content-type");
  form.append("a", "1");
  expect(type()).not.toContain("webmcp-gateway");
  form.append("file", new Blob(["x"]));
  expect(type()).toContain("webmcp-gateway");
  expect(() => new (Made as unknown as new () => Request)()).toThrow(TypeError);
});
