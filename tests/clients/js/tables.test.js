// Tables: creation, listing with filters and by pages, deletion.

import assert from "node:assert/strict";
import { TableClient, TableServiceClient, odata } from "@azure/data-tables";
import {
  CONNECTION,
  all,
  check,
  checkTable,
  options,
  refused,
  service,
  tableClient,
  unique,
} from "./helper.js";

const names = async (query) => (await all(service.listTables(query))).map((item) => item.name);

check("a table is created and listed in its given case", async () => {
  const name = unique("Mixed");
  await service.createTable(name);
  assert((await names()).includes(name));
  assert.deepEqual(await names({ queryOptions: { filter: odata`TableName eq ${name}` } }), [name]);
  await service.deleteTable(name);
  assert(!(await names()).includes(name));
});

checkTable("a name is unique whatever its case", async (table) => {
  for (const name of [table.tableName, table.tableName.toUpperCase()]) {
    const answers = [];
    await service.createTable(name, { onResponse: (response) => answers.push(response) });
    const body = JSON.parse(answers[0].bodyAsText);
    assert.deepEqual([answers[0].status, body["odata.error"].code], [409, "TableAlreadyExists"]);
  }
});

check("deleting a missing table is no error", async () => {
  const answers = [];
  await tableClient(unique()).deleteTable({
    onResponse: (response) => answers.push(response.status),
  });
  assert.deepEqual(answers, [404]);
});

check("names that are refused", async () => {
  for (const name of ["1abc", "a-b", "a_bc", "sp ace", "täbelle"]) {
    const error = await refused(400, "InvalidResourceName", () => service.createTable(name));
    const { message } = JSON.parse(error.response.bodyAsText)["odata.error"];
    assert.match(message.value, /^The specifed resource name contains invalid characters\./);
  }
  for (const name of ["ab", "x".repeat(64)]) {
    await refused(400, "OutOfRangeInput", () => service.createTable(name));
  }
  await refused(400, "InvalidInput", () => service.createTable("Tables"));
});

check("pages of tables, and a resumed listing", async () => {
  const prefix = unique().slice(0, 20);
  const made = ["Beta", "alpha", "Delta", "gamma", "EPSILON", "zeta", "Eta"].map(
    (tail) => prefix + tail,
  );
  await Promise.all(made.map((name) => service.createTable(name)));
  try {
    const expected = made.toSorted((a, b) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1));
    const queryOptions = { filter: odata`TableName ge ${prefix} and TableName lt ${prefix + "~"}` };
    assert.deepEqual(await names({ queryOptions }), expected);
    const pages = await all(service.listTables({ queryOptions }).byPage({ maxPageSize: 3 }));
    assert.deepEqual(
      pages.map((page) => page.length),
      [3, 3, 1],
    );
    const continuationToken = pages[0].continuationToken;
    const rest = await all(
      service.listTables({ queryOptions }).byPage({ maxPageSize: 3, continuationToken }),
    );
    assert.deepEqual(
      rest.flat().map((item) => item.name),
      expected.slice(3),
    );
    assert.equal(rest.at(-1).continuationToken, undefined);
  } finally {
    await Promise.all(made.map((name) => service.deleteTable(name)));
  }
});

checkTable("clients from a connection string", async (table) => {
  const client = TableClient.fromConnectionString(CONNECTION, table.tableName, options);
  await client.createEntity({ partitionKey: "p", rowKey: "r" });
  assert.equal((await table.getEntity("p", "r")).rowKey, "r");
  const found = await all(
    TableServiceClient.fromConnectionString(CONNECTION, options).listTables(),
  );
  assert(found.some((item) => item.name === table.tableName));
});
