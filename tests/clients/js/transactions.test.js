// Entity groups: they are applied as a whole or not at all, and report which operation failed.

import assert from "node:assert/strict";
import { TableTransaction } from "@azure/data-tables";
import {
  ETAG,
  all,
  check,
  checkTable,
  properties,
  refused,
  tableClient,
  unique,
} from "./helper.js";

const entity = (rowKey, more = {}) => ({ partitionKey: "p", rowKey, ...more });
const row = (n) => String(n).padStart(3, "0");
const creates = (count) =>
  Array.from({ length: count }, (_, n) => ["create", entity(row(n), { N: n })]);
const rows = async (table) => (await all(table.listEntities())).map((found) => found.rowKey);

// Checks that the group is refused because of operation `index`, and that nothing changes.
async function fails(table, actions, status, code, index) {
  const before = await all(table.listEntities());
  const error = await refused(status, code, () => table.submitTransaction(actions));
  assert(error.message.startsWith(`${index}:`), error.message);
  assert.deepEqual(await all(table.listEntities()), before);
}

checkTable("a hundred operations", async (table) => {
  const response = await table.submitTransaction(creates(100));
  assert.equal(response.status, 202);
  assert.deepEqual(
    response.subResponses.map((part) => part.status),
    new Array(100).fill(204),
  );
  const found = await all(table.listEntities());
  assert.deepEqual(
    found.map((item) => item.N),
    Array.from({ length: 100 }, (_, n) => n),
  );
  assert.deepEqual(
    found.map((item) => item.etag),
    response.subResponses.map((part) => part.etag),
  );
  for (const { rowKey, etag } of found)
    assert.equal(response.getResponseForEntity(rowKey).etag, etag);
});

checkTable("operations of each kind", async (table) => {
  for (const name of ["merge", "replace", "upmerge", "upreplace", "delete"]) {
    await table.createEntity(entity(name, { A: 1 }));
  }
  const transaction = new TableTransaction();
  transaction.createEntity(entity("create", { B: 2 }));
  transaction.updateEntity(entity("merge", { B: 2 }), "Merge");
  transaction.updateEntity(entity("replace", { B: 2 }), "Replace");
  transaction.upsertEntity(entity("upmerge", { B: 2 }), "Merge");
  transaction.upsertEntity(entity("upreplace", { B: 2 }), "Replace");
  transaction.upsertEntity(entity("upnew", { B: 2 }));
  transaction.deleteEntity("p", "delete");
  const { subResponses } = await table.submitTransaction(transaction.actions);
  assert.deepEqual(
    subResponses.map((part) => part.status),
    new Array(7).fill(204),
  );
  assert(subResponses.slice(0, 6).every((part) => ETAG.test(part.etag)));
  assert.equal(subResponses[6].etag, undefined);
  const found = Object.fromEntries(
    (await all(table.listEntities())).map((item) => [item.rowKey, properties(item)]),
  );
  assert.deepEqual(found, {
    create: { B: 2 },
    merge: { A: 1, B: 2 },
    replace: { B: 2 },
    upmerge: { A: 1, B: 2 },
    upnew: { B: 2 },
    upreplace: { B: 2 },
  });
});

for (const index of [0, 1, 57, 99]) {
  checkTable(`an insert of an existing entity, at ${index} of 100`, async (table) => {
    await table.createEntity(entity(row(index)));
    await fails(table, creates(100), 409, "EntityAlreadyExists", index);
  });
}

checkTable("a write to a missing entity", async (table) => {
  for (const action of [
    ["update", entity("missing"), "Merge"],
    ["update", entity("missing"), "Replace"],
    ["delete", entity("missing")],
  ]) {
    await fails(
      table,
      [["create", entity("a")], ["upsert", entity("b")], action],
      404,
      "ResourceNotFound",
      2,
    );
  }
});

checkTable("an etag that is outdated", async (table) => {
  const { etag: old } = await table.createEntity(entity("a", { A: 1 }));
  const { etag } = await table.updateEntity(entity("a", { A: 2 }));
  const group = (etag) => [
    ["create", entity("b")],
    ["update", entity("a", { A: 3 }), "Replace", { etag }],
  ];
  await fails(table, group(old), 412, "UpdateConditionNotSatisfied", 1);
  await table.submitTransaction(group(etag));
  assert.deepEqual(await rows(table), ["a", "b"]);
});

checkTable("the same entity twice", async (table) => {
  await fails(
    table,
    [
      ["create", entity("a")],
      ["upsert", entity("a")],
    ],
    400,
    "InvalidDuplicateRow",
    1,
  );
});

checkTable("several partitions", async (table) => {
  const other = { ...entity("b"), partitionKey: "other" };
  await assert.rejects(
    table.submitTransaction([
      ["create", entity("a")],
      ["create", other],
    ]),
    /same partitionKey/,
  );
  // The client checks the first value that this property returns, and sends the second.
  let asked = 0;
  const disguised = Object.defineProperty(entity("b"), "partitionKey", {
    enumerable: true,
    get: () => (asked++ === 0 ? "p" : "other"),
  });
  const actions = [
    ["create", entity("a")],
    ["create", disguised],
  ];
  await fails(table, actions, 400, "CommandsInBatchActOnDifferentPartitions", 1);
});

checkTable("a hundred and one operations", async (table) => {
  await refused(400, "InvalidInput", () => table.submitTransaction(creates(101)));
  assert.deepEqual(await rows(table), []);
});

checkTable("more than four mebibytes", async (table) => {
  const large = creates(100).map(([kind, found]) => [
    kind,
    { ...found, A: "x".repeat(30_000), B: "x".repeat(15_000) },
  ]);
  await refused(413, "RequestBodyTooLarge", () => table.submitTransaction(large));
  assert.deepEqual(await rows(table), []);
});

checkTable("an operation that breaks a limit", async (table) => {
  const large = entity("b", { A: "x".repeat(32_769) });
  await fails(
    table,
    [
      ["create", entity("a")],
      ["create", large],
    ],
    400,
    "PropertyValueTooLarge",
    1,
  );
  const named = entity("b", { "a-b": 1 });
  await fails(
    table,
    [
      ["create", entity("a")],
      ["create", named],
    ],
    400,
    "PropertyNameInvalid",
    1,
  );
});

check("a table that is missing", async () => {
  await refused(404, "TableNotFound", () => tableClient(unique()).submitTransaction(creates(2)));
});

checkTable("many groups at the same time", async (table) => {
  const group = (g) =>
    creates(50).map(([, found]) => ["upsert", { ...found, partitionKey: `p${g}`, G: g }]);
  await Promise.all(Array.from({ length: 16 }, (_, g) => table.submitTransaction(group(g))));
  const found = await all(table.listEntities());
  assert.equal(found.length, 16 * 50);
  assert(found.every((item) => item.partitionKey === `p${item.G}`));
});

checkTable("competing groups on the same entities are applied whole", async (table) => {
  const group = (g) => creates(20).map(([, found]) => ["upsert", { ...found, G: g }, "Replace"]);
  await Promise.all(Array.from({ length: 20 }, (_, g) => table.submitTransaction(group(g))));
  const found = await all(table.listEntities());
  assert.deepEqual([found.length, new Set(found.map((item) => item.G)).size], [20, 1]);
});
