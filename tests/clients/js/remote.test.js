// The entity that the library's `Remote` wrote, and one that `Remote` reads afterwards.

import assert from "node:assert/strict";
import { test } from "node:test";
import { tableClient } from "./helper.js";

const ROW = "it's 100% é😀";
const TYPED = {
  String: { type: "String", value: "it's \"quoted\" \\ é😀\n" },
  Empty: { type: "String", value: "" },
  Boolean: { type: "Boolean", value: "true" },
  Int32: { type: "Int32", value: "-2147483648" },
  Int64: { type: "Int64", value: "9007199254740993" },
  Whole: { type: "Double", value: "2" },
  Double: { type: "Double", value: "0.1" },
  Infinite: { type: "Double", value: "Infinity" },
  DateTime: { type: "DateTime", value: "2024-02-29T23:59:59.123456Z" },
  Guid: { type: "Guid", value: "0f8fad5b-d9cb-469f-a165-70867728950e" },
  Binary: { type: "Binary", value: "AP+A" },
};

const skip = !process.env.ROWSTONE_REFEREES && "tests/clients/run writes the entity first";

test("an entity of Remote", { skip }, async () => {
  const table = tableClient("Referee");
  const found = await table.getEntity("rust", ROW, { disableTypeConversion: true });
  for (const [name, expected] of Object.entries(TYPED)) {
    // The SDK cannot tell 2.0 from 2 in JSON.
    const type = name === "Whole" ? "Int32" : expected.type;
    assert.deepEqual(found[name], { ...expected, type }, name);
  }
  const { String: text, Boolean: flag, Int64: long, Binary: bytes } = await table.getEntity("rust", ROW);
  assert.deepEqual([text, flag, long], [TYPED.String.value, true, 2n ** 53n + 1n]);
  assert.deepEqual([...bytes], [0, 255, 128]);
  await table.createEntity({ partitionKey: "js", rowKey: ROW, ...TYPED });
});
