// The eight types, at their limits and beyond.

import assert from "node:assert/strict";
import { all, checkTable, properties, refused } from "./helper.js";

const KEYS = { partitionKey: "p", rowKey: "r" };

// Stores `value`, and returns it as read with and without conversion of types, and as text.
async function stored(table, value) {
  await table.upsertEntity({ ...KEYS, V: value }, "Replace");
  let text;
  const { V } = await table.getEntity("p", "r", {
    onResponse: (response) => (text = response.bodyAsText),
  });
  const { V: typed } = await table.getEntity("p", "r", { disableTypeConversion: true });
  const [listed] = await all(table.listEntities());
  assert.deepEqual(listed.V, V);
  return { value: V, typed, text };
}

const typed = (type, value) => ({ type, value });

for (const text of [
  "",
  "plain",
  'it\'s "quoted" \\ /',
  "tab\tline\r\n\u0001",
  "grüße 名前 😀 \u2028",
  "x".repeat(32_768),
]) {
  checkTable(`the string ${JSON.stringify(text.slice(0, 12))} of ${text.length}`, async (table) => {
    const found = await stored(table, text);
    assert.deepEqual([found.value, found.typed], [text, typed("String", text)]);
    assert.equal((await stored(table, typed("String", text))).value, text);
  });
}

checkTable("booleans", async (table) => {
  for (const flag of [true, false]) {
    assert.equal((await stored(table, flag)).value, flag);
    assert.equal((await stored(table, typed("Boolean", flag))).value, flag);
  }
});

checkTable("int32", async (table) => {
  for (const number of [0, 1, -1, 2 ** 31 - 1, -(2 ** 31)]) {
    const found = await stored(table, number);
    assert.equal(found.value, number);
    assert.deepEqual(found.typed, typed("Int32", String(number)));
    assert.equal((await stored(table, typed("Int32", number))).value, number);
  }
});

checkTable("int64", async (table) => {
  for (const number of [0n, 1n, -1n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n)]) {
    const found = await stored(table, number);
    assert.equal(found.value, number);
    assert.deepEqual(found.typed, typed("Int64", String(number)));
  }
});

checkTable("beyond int64", async (table) => {
  for (const number of [2n ** 63n, -(2n ** 63n) - 1n]) {
    await refused(400, "InvalidInput", () => table.createEntity({ ...KEYS, V: number }));
  }
});

checkTable("doubles", async (table) => {
  for (const number of [
    0.1,
    1 / 3,
    -123456789.125,
    1e21,
    1e23,
    5e-324,
    Number.MAX_VALUE,
    -Number.MAX_VALUE,
  ]) {
    assert.equal((await stored(table, number)).value, number);
    assert.equal((await stored(table, typed("Double", number))).value, number);
    assert.equal((await stored(table, typed("Double", String(number)))).value, number);
  }
});

checkTable("doubles without a fraction remain doubles", async (table) => {
  for (const number of [0, 5, -7]) {
    const found = await stored(table, typed("Double", number));
    assert.equal(found.value, number);
    assert(found.text.includes(`"V":${number}.0`), found.text);
  }
});

checkTable("doubles that are no numbers", async (table) => {
  for (const text of ["NaN", "Infinity", "-Infinity"]) {
    const found = await stored(table, typed("Double", text));
    assert.deepEqual([found.value, found.typed], [text, typed("Double", text)]);
  }
});

checkTable("times", async (table) => {
  for (const [given, text] of [
    ["1601-01-01T00:00:00.000Z", "1601-01-01T00:00:00Z"],
    ["2020-10-01T00:38:38.470Z", "2020-10-01T00:38:38.47Z"],
    ["9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"],
  ]) {
    const found = await stored(table, new Date(given));
    assert.deepEqual(found.value, new Date(given));
    assert.deepEqual(found.typed, typed("DateTime", text));
  }
});

checkTable("times in ticks and zones", async (table) => {
  for (const [given, text] of [
    ["2024-05-01T10:00:00.1234567Z", "2024-05-01T10:00:00.1234567Z"],
    ["9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z"],
    ["2024-05-01T10:00:00+02:00", "2024-05-01T08:00:00Z"],
  ]) {
    assert.deepEqual(
      (await stored(table, typed("DateTime", given))).typed,
      typed("DateTime", text),
    );
  }
});

checkTable("times out of range", async (table) => {
  await refused(400, "OutOfRangeInput", () =>
    table.createEntity({ ...KEYS, V: new Date("1600-12-31T23:59:59Z") }),
  );
});

checkTable("guids", async (table) => {
  const guid = "0f8fad5b-d9cb-469f-a165-70867728950e";
  for (const given of [guid, guid.toUpperCase()]) {
    assert.deepEqual((await stored(table, typed("Guid", given))).value, typed("Guid", guid));
  }
});

checkTable("binary", async (table) => {
  for (const bytes of [
    [],
    [0],
    Array.from({ length: 256 }, (_, n) => n),
    new Array(65_536).fill(255),
  ]) {
    const data = Uint8Array.from(bytes);
    assert.deepEqual(Uint8Array.from((await stored(table, data)).value), data);
  }
  const data = new Uint8Array(65_537);
  await refused(400, "PropertyValueTooLarge", () =>
    table.createEntity({ ...KEYS, rowKey: "large", V: data }),
  );
});

checkTable("values that do not fit their type", async (table) => {
  for (const [type, value] of [
    ["Guid", "0f8fad5b"],
    ["Double", "1e400"],
    ["Double", "one"],
    ["Int64", "1.5"],
    ["Int64", "many"],
    ["DateTime", "yesterday"],
    ["DateTime", ""],
  ]) {
    await refused(400, "InvalidInput", () =>
      table.createEntity({ ...KEYS, V: typed(type, value) }),
    );
  }
  assert.deepEqual(await all(table.listEntities()), []);
});

checkTable("all types in one entity survive two round trips", async (table) => {
  const entity = {
    String: "text",
    Boolean: true,
    Int32: -7,
    Int64: 2n ** 40n,
    Double: 2.5,
    DateTime: new Date("2024-01-31T12:30:00.000Z"),
    Guid: typed("Guid", "0f8fad5b-d9cb-469f-a165-70867728950e"),
    Binary: Uint8Array.from([1, 2, 3]),
  };
  const plain = (found) => ({ ...properties(found), Binary: Uint8Array.from(found.Binary) });
  await table.createEntity({ ...KEYS, ...entity });
  const read = await table.getEntity("p", "r");
  assert.deepEqual(plain(read), entity);
  await table.updateEntity({ ...KEYS, ...properties(read) }, "Replace");
  await table.submitTransaction([["upsert", { ...KEYS, ...properties(read) }, "Replace"]]);
  const [listed] = await all(table.listEntities());
  assert.deepEqual(plain(listed), entity);
});
