// Queries: filters, selections, pages over several thousand entities.

import assert from "node:assert/strict";
import { after, before } from "node:test";
import { odata } from "@azure/data-tables";
import { all, check, checkTable, properties, refused, tableClient, unique } from "./helper.js";

const PARTITIONS = ["a", "b", "c"];
const ROWS = 1100;
const KEYS_OF_MANY = PARTITIONS.flatMap((partition) =>
  Array.from({ length: ROWS }, (_, n) => [partition, String(n).padStart(5, "0")]),
);
const many = tableClient(unique());

before(async () => {
  await many.createTable();
  for (const partitionKey of PARTITIONS) {
    for (let start = 0; start < ROWS; start += 100) {
      const group = Array.from({ length: 100 }, (_, n) => start + n);
      await many.submitTransaction(
        group.map((N) => [
          "create",
          { partitionKey, rowKey: String(N).padStart(5, "0"), N, Even: N % 2 === 0 },
        ]),
      );
    }
  }
});
after(() => many.deleteTable());

const keys = (entities) => entities.map((entity) => [entity.partitionKey, entity.rowKey]);
const rows = async (table, filter) =>
  (await all(table.listEntities({ queryOptions: { filter } }))).map((entity) => entity.rowKey);

check("a listing has every entity once, in order", async () => {
  assert.deepEqual(keys(await all(many.listEntities())), KEYS_OF_MANY);
});

for (const maxPageSize of [undefined, 7, 999, 1000]) {
  check(`pages of ${maxPageSize}`, async () => {
    const pages = await all(many.listEntities().byPage({ maxPageSize }));
    assert(pages.every((page) => page.length <= (maxPageSize ?? 1000)));
    assert.equal(pages[0].length, maxPageSize ?? 1000);
    assert.deepEqual(keys(pages.flat()), KEYS_OF_MANY);
  });
}

check("pages that are too large", async () => {
  await refused(400, "InvalidInput", () => all(many.listEntities().byPage({ maxPageSize: 1001 })));
});

check("a listing is resumed by its token", async () => {
  const queryOptions = { filter: "Even eq true" };
  const pages = many.listEntities({ queryOptions }).byPage({ maxPageSize: 100 });
  const { value: first } = await pages.next();
  const { continuationToken } = first;
  const other = tableClient(many.tableName);
  const rest = await all(
    other.listEntities({ queryOptions }).byPage({ maxPageSize: 1000, continuationToken }),
  );
  assert.deepEqual(
    keys([...first, ...rest.flat()]),
    KEYS_OF_MANY.filter(([, row]) => Number(row) % 2 === 0),
  );
});

check("ranges of keys, and operators", async () => {
  for (const [filter, found] of [
    [
      odata`PartitionKey eq ${"b"} and RowKey ge ${"00010"} and RowKey lt ${"00012"}`,
      ["00010", "00011"],
    ],
    [odata`PartitionKey eq ${"a"} and RowKey eq ${"none"}`, []],
    ["RowKey eq '00500'", ["00500", "00500", "00500"]],
    [
      odata`PartitionKey eq ${"c"} and N ge ${100} and N lt ${104} and Even eq ${false}`,
      ["00101", "00103"],
    ],
    ["PartitionKey eq 'a' and not (N gt 2)", ["00000", "00001", "00002"]],
    ["PartitionKey eq 'a' and not Even and N lt 4", ["00001", "00003"]],
    ["(PartitionKey eq 'a' and N eq 1) or (PartitionKey eq 'c' and N eq 2)", ["00001", "00002"]],
    ["N eq 123456", []],
  ]) {
    assert.deepEqual(await rows(many, filter), found, filter);
  }
});

check("filters that are refused", async () => {
  for (const filter of [
    "N eq",
    "(N eq 1",
    "N === 1",
    "1",
    "N eq 3000000000",
    "N eq null",
    "N lt null",
  ]) {
    await refused(400, "InvalidInput", () => rows(many, filter));
  }
  for (const filter of ["startswith(RowKey, '0')", "N add 1 eq 2", "N eq N"]) {
    await refused(501, "NotImplemented", () => rows(many, filter));
  }
});

checkTable("a literal of each type", async (table) => {
  const guid = "0f8fad5b-d9cb-469f-a165-70867728950e";
  const values = {
    string: "it's",
    int32: 5,
    int64: 6n,
    double: 2.5,
    boolean: true,
    time: new Date("2024-05-01T10:00:00.123Z"),
    guid: { type: "Guid", value: guid },
    binary: Uint8Array.from([0, 255]),
  };
  for (const [rowKey, V] of Object.entries(values))
    await table.createEntity({ partitionKey: "p", rowKey, V });
  for (const [filter, row] of [
    [odata`V eq ${"it's"}`, "string"],
    [odata`V eq ${5}`, "int32"],
    [odata`V eq ${6n}L`, "int64"],
    [odata`V eq ${6}`, "int64"],
    [odata`V eq ${2.5}`, "double"],
    [odata`V eq ${true}`, "boolean"],
    [odata`V eq ${new Date("2024-05-01T10:00:00.123Z")}`, "time"],
    [odata`V eq guid'${guid}'`, "guid"],
    ["V eq X'00ff'", "binary"],
  ]) {
    assert.deepEqual(await rows(table, filter), [row], filter);
  }
});

check("selections over pages", async () => {
  const queryOptions = { filter: "Even eq true", select: ["N"] };
  const pages = await all(many.listEntities({ queryOptions }).byPage({ maxPageSize: 500 }));
  const entities = pages.flat();
  assert.equal(entities.length, (3 * ROWS) / 2);
  assert(
    entities.every(
      (entity, n) => entity.N === (2 * n) % ROWS && Object.keys(properties(entity)).length === 1,
    ),
  );
  assert(entities.every((entity) => entity.partitionKey === undefined && entity.etag));
});
