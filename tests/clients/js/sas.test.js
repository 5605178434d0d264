// Shared access signatures of the account and of one table: permitted and refused operations.

import assert from "node:assert/strict";
import {
  AzureNamedKeyCredential,
  TableClient,
  generateAccountSas,
  generateTableSas,
} from "@azure/data-tables";
import {
  account,
  all,
  check,
  checkTable,
  credential,
  endpoint,
  later,
  options,
  refused,
  signedService,
  signedTable,
  tableClient,
  unique,
} from "./helper.js";

const KEYS = { partitionKey: "p", rowKey: "r" };
const FAILED = [403, "AuthenticationFailed"];
const MISMATCH = [403, "AuthorizationPermissionMismatch"];
const FAILURE = [403, "AuthorizationFailure"];

const LETTERS = { r: "query", w: "write", d: "delete", l: "list", a: "add", u: "update" };
const permissions = (letters) =>
  Object.fromEntries([...letters].map((letter) => [LETTERS[letter], true]));

const accountSas = (letters, options = {}) =>
  generateAccountSas(credential, {
    permissions: permissions(letters),
    expiresOn: later(1),
    ...options,
  });
const tableSas = (name, letters, options = {}) =>
  generateTableSas(name, credential, {
    permissions: permissions(letters),
    expiresOn: later(1),
    ...options,
  });

// Operations with the permission letters that they need.
const operations = (table) => [
  ["r", () => table.getEntity("p", "r")],
  ["r", () => all(table.listEntities())],
  ["a", () => table.createEntity({ ...KEYS, rowKey: unique() })],
  ["u", () => table.updateEntity({ ...KEYS, A: 1 }, "Merge")],
  ["u", () => table.updateEntity({ ...KEYS, A: 2 }, "Replace")],
  ["au", () => table.upsertEntity({ ...KEYS, A: 3 }, "Merge")],
  ["au", () => table.upsertEntity({ ...KEYS, A: 4 }, "Replace")],
  ["a", () => table.submitTransaction([["create", { ...KEYS, rowKey: unique() }]])],
  ["d", () => table.deleteEntity("p", "r")],
];

async function allowsExactly(table, letters) {
  for (const [needed, attempt] of operations(table)) {
    if ([...needed].every((letter) => letters.includes(letter))) await attempt();
    else await refused(...MISMATCH, attempt);
  }
}

for (const letters of ["r", "a", "u", "d", "au", "raud"]) {
  checkTable(`the account's signature with ${letters}`, async (table) => {
    await table.createEntity(KEYS);
    await allowsExactly(signedTable(table.tableName, accountSas(letters)), letters);
  });

  checkTable(`a table's signature with ${letters}`, async (table) => {
    await table.createEntity(KEYS);
    await allowsExactly(signedTable(table.tableName, tableSas(table.tableName, letters)), letters);
  });
}

check("tables by the account's signature", async () => {
  const service = signedService(accountSas("rwdlau"));
  const name = unique();
  await service.createTable(name);
  assert((await all(service.listTables())).some((item) => item.name === name));
  assert((await service.getProperties()).hourMetrics);
  await refused(...MISMATCH, () => signedService(accountSas("rlau")).createTable(unique()));
  await refused(...MISMATCH, () => all(signedService(accountSas("rwdau")).listTables()));
  await service.deleteTable(name);
});

checkTable("types of resource", async (table) => {
  await table.createEntity(KEYS);
  for (const kind of ["s", "c", "o"]) {
    const token = accountSas("rwdlau", { resourceTypes: kind });
    for (const [needed, attempt] of [
      ["s", () => signedService(token).getProperties()],
      ["c", () => all(signedService(token).listTables())],
      ["o", () => signedTable(table.tableName, token).createEntity({ ...KEYS, rowKey: "new" })],
    ]) {
      if (needed === kind) await attempt();
      else await refused(403, "AuthorizationResourceTypeMismatch", attempt);
    }
  }
});

checkTable("times, addresses, protocols", async (table) => {
  await table.createEntity(KEYS);
  for (const make of [
    (options) => accountSas("r", options),
    (options) => tableSas(table.tableName, "r", options),
  ]) {
    const read = (options) => signedTable(table.tableName, make(options)).getEntity("p", "r");
    await read({ startsOn: later(-1) });
    await refused(...FAILED, () => read({ expiresOn: later(-1) }));
    await refused(...FAILED, () => read({ startsOn: later(1), expiresOn: later(2) }));
    await read({ ipRange: { start: "127.0.0.0", end: "127.0.0.255" } });
    await refused(403, "AuthorizationSourceIPMismatch", () =>
      read({ ipRange: { start: "10.1.2.3" } }),
    );
    await read({ protocol: "https,http" });
    await refused(403, "AuthorizationProtocolMismatch", () => read({ protocol: "https" }));
  }
});

checkTable("versions of signatures", async (table) => {
  await table.createEntity(KEYS);
  for (const version of ["2015-04-05", "2017-11-09", "2019-02-02", "2020-08-04"]) {
    for (const token of [
      accountSas("r", { version }),
      tableSas(table.tableName, "r", { version }),
    ]) {
      assert.equal((await signedTable(table.tableName, token).getEntity("p", "r")).rowKey, "r");
    }
  }
});

checkTable("a signature by another key, or tampered with", async (table) => {
  await table.createEntity(KEYS);
  const stranger = new AzureNamedKeyCredential(account, "QUJD".repeat(21) + "QQ==");
  const tokens = [
    generateTableSas(table.tableName, stranger, { expiresOn: later(1) }),
    generateAccountSas(stranger, { expiresOn: later(1) }),
    accountSas("r").replace("sp=r", "sp=ra"),
    tableSas(table.tableName, "r").replace("sp=r", "sp=ra"),
  ];
  for (const token of tokens) {
    await refused(...FAILED, () => signedTable(table.tableName, token).getEntity("p", "r"));
  }
});

checkTable("a table's signature is for entities of that table", async (table) => {
  const service = signedService(tableSas(table.tableName, "raud"));
  for (const attempt of [
    () => service.createTable(unique()),
    () => service.deleteTable(table.tableName),
    () => all(service.listTables()),
    () => service.getProperties(),
  ]) {
    await refused(...FAILURE, attempt);
  }
  const other = tableClient(unique());
  await other.createTable();
  const attempt = signedTable(other.tableName, tableSas(table.tableName, "raud")).createEntity(
    KEYS,
  );
  await assert.rejects(attempt, { statusCode: 403 });
  await other.deleteTable();
});

for (const [bounds, inside] of [
  [{}, "a1 a2 b1 b2 b3 c1 c2"],
  [{ startPartitionKey: "b" }, "b1 b2 b3 c1 c2"],
  [{ endPartitionKey: "b" }, "a1 a2 b1 b2 b3"],
  [{ startPartitionKey: "b", startRowKey: "2" }, "b2 b3 c1 c2"],
  [{ startPartitionKey: "a", startRowKey: "2", endPartitionKey: "b", endRowKey: "1" }, "a2 b1"],
]) {
  checkTable(`a range of keys: ${inside}`, async (table) => {
    const everything = "a1 a2 b1 b2 b3 c1 c2".split(" ");
    const entity = ([partitionKey, rowKey]) => ({ partitionKey, rowKey });
    for (const name of everything) await table.createEntity(entity(name));
    const signed = signedTable(table.tableName, tableSas(table.tableName, "raud", bounds));
    const found = (await all(signed.listEntities())).map((item) => item.partitionKey + item.rowKey);
    assert.deepEqual(found, inside.split(" "));
    for (const name of everything) {
      for (const attempt of [
        () => signed.getEntity(...name),
        () => signed.upsertEntity(entity(name)),
        () => signed.submitTransaction([["update", entity(name)]]),
        () => signed.deleteEntity(...name),
        () => signed.createEntity(entity(name)),
      ]) {
        if (inside.includes(name)) await attempt();
        else await refused(...FAILURE, attempt);
      }
    }
  });
}

checkTable("a stored policy grants and revokes", async (table) => {
  await table.createEntity(KEYS);
  const token = generateTableSas(table.tableName, credential, { identifier: "reader" });
  const signed = signedTable(table.tableName, token);
  const set = (accessPolicy, id = "reader") =>
    table.setAccessPolicy([
      { id, accessPolicy: { start: later(-1), expiry: later(1), ...accessPolicy } },
    ]);
  await refused(...FAILED, () => signed.getEntity("p", "r"));
  await set({ permission: "r" });
  await signed.getEntity("p", "r");
  await refused(...MISMATCH, () => signed.createEntity({ ...KEYS, rowKey: "new" }));
  await set({ permission: "ra" });
  await signed.createEntity({ ...KEYS, rowKey: "new" });
  await set({ permission: "ra", expiry: later(-0.5) });
  await refused(...FAILED, () => signed.getEntity("p", "r"));
  await set({ permission: "r" }, "other");
  await refused(...FAILED, () => signed.getEntity("p", "r"));
});

checkTable("a signature within the address or the connection string", async (table) => {
  const name = table.tableName;
  for (const token of [
    accountSas("rwdlau"),
    tableSas(name, "raud", { startPartitionKey: "a", endPartitionKey: "z" }),
  ]) {
    const text = `TableEndpoint=${endpoint};SharedAccessSignature=${token}`;
    for (const client of [
      new TableClient(`${endpoint}?${token}`, name, options),
      TableClient.fromConnectionString(text, name, { ...options }),
    ]) {
      await client.createEntity({ ...KEYS, A: 1 });
      assert.equal((await client.getEntity("p", "r")).A, 1);
      await client.updateEntity({ ...KEYS, A: 2 }, "Replace");
      assert.deepEqual(
        (await all(client.listEntities())).map((item) => item.A),
        [2],
      );
      const { subResponses } = await client.submitTransaction([
        ["update", { ...KEYS, A: 3 }, "Merge"],
        ["create", { ...KEYS, rowKey: "s" }],
      ]);
      assert.deepEqual(
        subResponses.map((part) => part.status),
        [204, 204],
      );
      assert.equal((await client.getEntity("p", "r")).A, 3);
      await client.deleteEntity("p", "r");
      await client.submitTransaction([["delete", { ...KEYS, rowKey: "s" }]]);
    }
  }
});
