// Single entities: insert, get, update, upsert, delete; names and sizes.

import assert from "node:assert/strict";
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

const KEYS = { partitionKey: "p", rowKey: "r" };
const MODES = ["Merge", "Replace"];
const read = async (table, more) => properties(await table.getEntity("p", "r", more));

checkTable("an insert answers 204 with the etag the entity is read with", async (table) => {
  const answers = [];
  const inserted = await table.createEntity(
    { ...KEYS, A: 1 },
    { onResponse: (response) => answers.push(response) },
  );
  assert.equal(answers[0].status, 204);
  assert.match(inserted.etag, ETAG);
  assert.equal(inserted.preferenceApplied, "return-no-content");
  const entity = await table.getEntity("p", "r");
  assert.equal(entity.etag, inserted.etag);
  assert(Math.abs(Date.parse(entity.timestamp) - Date.now()) < 60_000);
  const [listed] = await all(table.listEntities());
  assert.deepEqual(
    { ...listed },
    { ...properties(entity), ...KEYS, etag: entity.etag, timestamp: entity.timestamp },
  );
  await refused(409, "EntityAlreadyExists", () => table.createEntity(KEYS));
});

check("a missing entity is not found", async () => {
  const missing = tableClient(unique());
  for (const attempt of [
    () => missing.getEntity("p", "r"),
    () => missing.createEntity(KEYS),
    () => missing.updateEntity(KEYS),
    () => missing.upsertEntity(KEYS),
    () => missing.deleteEntity("p", "r"),
    () => all(missing.listEntities()),
  ]) {
    await refused(404, "TableNotFound", attempt);
  }
});

checkTable("a missing entity is not updated or deleted", async (table) => {
  await refused(404, "ResourceNotFound", () => table.getEntity("p", "r"));
  await refused(404, "ResourceNotFound", () => table.deleteEntity("p", "r"));
  for (const mode of MODES)
    await refused(404, "ResourceNotFound", () => table.updateEntity(KEYS, mode));
});

checkTable("merge keeps other properties and replace drops them", async (table) => {
  await table.createEntity({ ...KEYS, A: 1, B: "b" });
  const merged = await table.updateEntity({ ...KEYS, B: "new", C: true }, "Merge");
  assert.match(merged.etag, ETAG);
  assert.deepEqual(await read(table), { A: 1, B: "new", C: true });
  await table.updateEntity({ ...KEYS, D: 4 }, "Replace");
  assert.deepEqual(await read(table), { D: 4 });
});

for (const mode of MODES) {
  checkTable(`upsert by ${mode} creates or updates the entity`, async (table) => {
    assert.match((await table.upsertEntity({ ...KEYS, A: 1, B: 2 }, mode)).etag, ETAG);
    assert.deepEqual(await read(table), { A: 1, B: 2 });
    await table.upsertEntity({ ...KEYS, B: 3 }, mode);
    assert.deepEqual(await read(table), mode === "Merge" ? { A: 1, B: 3 } : { B: 3 });
  });
}

checkTable(
  "null is no value: an insert omits it and a merge keeps the old value",
  async (table) => {
    await table.createEntity({ ...KEYS, A: 1, N: null, U: undefined });
    assert.deepEqual(await read(table), { A: 1 });
    await table.updateEntity({ ...KEYS, A: null, B: 2 }, "Merge");
    assert.deepEqual(await read(table), { A: 1, B: 2 });
    await table.updateEntity({ ...KEYS, A: null, C: 3 }, "Replace");
    assert.deepEqual(await read(table), { C: 3 });
  },
);

for (const form of ["MERGE", "tunnelled MERGE", "tunnelled PATCH", "tunnelled PUT"]) {
  checkTable(`an update sent as ${form}`, async (table) => {
    await table.createEntity({ ...KEYS, A: 1 });
    const other = tableClient(table.tableName);
    const [, tunnelled, verb] = /^(tunnelled )?(\w+)$/.exec(form);
    other.pipeline.addPolicy({
      name: "verb",
      sendRequest(request, next) {
        if (request.method === "PATCH") {
          request.method = tunnelled ? "POST" : verb;
          if (tunnelled) request.headers.set("X-HTTP-Method", verb);
        }
        return next(request);
      },
    });
    assert.match((await other.updateEntity({ ...KEYS, B: 2 }, "Merge")).etag, ETAG);
    assert.deepEqual(await read(table), verb === "PUT" ? { B: 2 } : { A: 1, B: 2 });
    await refused(412, "UpdateConditionNotSatisfied", () =>
      other.updateEntity({ ...KEYS, B: 3 }, "Merge", {
        etag: `W/"datetime'2020-01-01T00%3A00%3A00Z'"`,
      }),
    );
  });
}

for (const kind of ["Merge", "Replace", "delete"]) {
  const write = (table, etag) =>
    kind === "delete"
      ? table.deleteEntity("p", "r", { etag })
      : table.updateEntity({ ...KEYS, A: 2 }, kind, { etag });

  checkTable(`an etag guards ${kind}`, async (table) => {
    const { etag: old } = await table.createEntity({ ...KEYS, A: 1 });
    const { etag } = await table.updateEntity({ ...KEYS, A: 1 });
    assert.notEqual(etag, old);
    await refused(412, "UpdateConditionNotSatisfied", () => write(table, old));
    assert.equal((await table.getEntity("p", "r")).etag, etag);
    await write(table, etag);
    if (kind === "delete") await refused(404, "ResourceNotFound", () => write(table, etag));
    else assert.equal((await table.getEntity("p", "r")).A, 2);
  });

  checkTable(`a malformed etag, for ${kind}`, async (table) => {
    await table.createEntity(KEYS);
    for (const etag of ["test", 'W/"wrong"', "W/\"datetime'yesterday'\""]) {
      await refused(400, "InvalidInput", () => write(table, etag));
    }
  });
}

checkTable("get with a selection", async (table) => {
  await table.createEntity({ ...KEYS, A: 1, B: "b", C: 2.5 });
  const entity = await table.getEntity("p", "r", {
    queryOptions: { select: ["A", "partitionKey"] },
  });
  assert.match(entity.etag, ETAG);
  assert.deepEqual(properties(entity), { A: 1 });
  assert.deepEqual([entity.partitionKey, entity.rowKey], ["p", undefined]);
});

checkTable("a selected property the entity lacks is null", async (table) => {
  await table.createEntity({ ...KEYS, A: 1 });
  const queryOptions = { select: ["A", "Lacking"] };
  assert.deepEqual(await read(table, { queryOptions }), { A: 1, Lacking: null });
  const [listed] = await all(table.listEntities({ queryOptions }));
  assert.deepEqual(properties(listed), { A: 1, Lacking: null });
});

checkTable("names and counts of properties", async (table) => {
  const many = Object.fromEntries(Array.from({ length: 252 }, (_, n) => [`Größe_${n}`, n]));
  await table.createEntity({ ...KEYS, ...many });
  assert.deepEqual(await read(table), many);
  await refused(400, "TooManyProperties", () =>
    table.upsertEntity({ ...KEYS, ...many, More: 1 }, "Replace"),
  );
  await refused(400, "TooManyProperties", () => table.updateEntity({ ...KEYS, More: 1 }, "Merge"));
  await refused(400, "PropertyNameTooLong", () =>
    table.upsertEntity({ ...KEYS, ["N".repeat(256)]: 1 }),
  );
  await refused(400, "PropertyNameInvalid", () => table.upsertEntity({ ...KEYS, "a-b": 1 }));
});

checkTable("sizes", async (table) => {
  const large = Object.fromEntries(
    Array.from({ length: 16 }, (_, n) => [`P${n}`, "x".repeat(32_000)]),
  );
  await table.createEntity({ ...KEYS, ...large });
  assert.deepEqual(await read(table), large);
  await refused(400, "EntityTooLarge", () =>
    table.upsertEntity({ ...KEYS, Q: "x".repeat(32_000) }),
  );
  await refused(400, "PropertyValueTooLarge", () =>
    table.upsertEntity({ ...KEYS, Q: "x".repeat(32_769) }),
  );
});

// Keys with characters that are special in addresses, quotes and signatures.
const UNUSUAL = [
  "",
  " ",
  " both ends ",
  "O'Hara",
  "''",
  '"double"',
  "100%",
  "%25",
  "%2F",
  "a+b",
  "a b",
  "a&b=c",
  "(x,y)",
  "RowKey='r')",
  "a,RowKey='b'",
  ";:@$!*~",
  "[]{}|^`<>",
  "...",
  "größe",
  "名前",
  "😀",
  "e\u0301",
  "\u00a0\u2028\ufeff",
  "x".repeat(512),
];

for (const key of UNUSUAL) {
  checkTable(`every operation with the key ${JSON.stringify(key.slice(0, 12))}`, async (table) => {
    const keys = { partitionKey: key, rowKey: key };
    const { etag } = await table.createEntity({ ...keys, A: 1 });
    const entity = await table.getEntity(key, key);
    assert.deepEqual(
      [entity.partitionKey, entity.rowKey, entity.A, entity.etag],
      [key, key, 1, etag],
    );
    await table.updateEntity({ ...keys, B: 2 }, "Merge", { etag });
    await table.upsertEntity({ ...keys, C: 3 }, "Merge");
    assert.deepEqual(properties(await table.getEntity(key, key)), { A: 1, B: 2, C: 3 });
    await refused(412, "UpdateConditionNotSatisfied", () => table.deleteEntity(key, key, { etag }));
    await table.submitTransaction([["update", { ...keys, A: 4 }, "Replace"]]);
    const [listed, ...others] = await all(table.listEntities());
    assert.deepEqual([listed.partitionKey, listed.rowKey, listed.A, others], [key, key, 4, []]);
    await table.submitTransaction([["delete", keys]]);
    await table.upsertEntity(keys, "Replace");
    await table.deleteEntity(key, key);
    assert.deepEqual(await all(table.listEntities()), []);
  });
}

for (const key of ["a/b", "a\\b", "a#b", "a?b", "a\tb", "a\u0000b", "a\u007fb", "a\u0080b"]) {
  checkTable(`an insert with the forbidden key ${JSON.stringify(key)}`, async (table) => {
    for (const keys of [
      { partitionKey: key, rowKey: "r" },
      { partitionKey: "p", rowKey: key },
    ]) {
      await refused(400, "OutOfRangeInput", () => table.createEntity(keys));
    }
  });
}
