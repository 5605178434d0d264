// Shows what a program sees of a service that misbehaves by the rules of ../behave.json.
//
// A program without retries fails, and one with retries passes, with one exception: a retried insert
// with a lost answer gets 409. Its remedy is an id of the request in the entity.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { credential, endpoint, service, tableAt } from "./helper.js";

const entity = (rowKey) => ({ partitionKey: "p", rowKey, RequestId: randomUUID() });

// Creates a table; returns a client without retries and one with them.
async function create(name) {
  await service.createTable(name);
  const retryOptions = { maxRetries: 3, retryDelayInMs: 10, maxRetryDelayInMs: 100 };
  return [tableAt(endpoint, name), tableAt(endpoint, name, credential, { retryOptions })];
}

// Inserts an entity. After 409, the id tells whether an earlier try of this very insert did.
async function insertOnce(table, row) {
  const made = entity(row);
  try {
    await table.createEntity(made);
    return false;
  } catch (error) {
    if (error.statusCode !== 409) throw error;
    const found = await table.getEntity(made.partitionKey, made.rowKey);
    if (found.RequestId !== made.RequestId) throw error;
    return true;
  }
}

async function all(table) {
  const found = [];
  for await (const each of table.listEntities()) found.push(each.rowKey);
  return found;
}

const status = (statusCode) => ({ statusCode });
const noAnswer = (error) => error.statusCode === undefined;

let [none, some] = await create("busy");
await assert.rejects(none.createEntity(entity("a")), status(503));
await some.createEntity(entity("b"));

[none, some] = await create("late");
await assert.rejects(none.upsertEntity(entity("a"), "Replace"), status(500));
await none.getEntity("p", "a");
await some.upsertEntity(entity("b"), "Replace");

[none, some] = await create("again");
await assert.rejects(none.upsertEntity(entity("a"), "Replace"), noAnswer);
await some.upsertEntity(entity("b"), "Replace");
await assert.rejects(none.getEntity("p", "a"), noAnswer);
await some.getEntity("p", "b");
assert.deepEqual(await all(some), ["a", "b"]);

[none, some] = await create("lost");
await assert.rejects(none.createEntity(entity("a")), noAnswer);
await assert.rejects(some.createEntity(entity("b")), status(409));
assert(await insertOnce(some, "c"), "the first try inserted it");
await assert.rejects(insertOnce(some, "c"), status(409));

[none, some] = await create("cut");
// The SDK repeats no request with a cut answer.
const cut = { code: "PARSE_ERROR" };
const group = [["upsert", entity("a")]];
await assert.rejects(some.submitTransaction(group), cut);
assert.equal((await some.submitTransaction(group)).status, 202);
await assert.rejects(some.getEntity("p", "a"), cut);
await some.getEntity("p", "a");

[none, some] = await create("pages");
for (const row of "abc") await none.createEntity(entity(row));
const pages = [];
for await (const page of none.listEntities().byPage()) pages.push(page.length);
assert.deepEqual(pages, [0, 2, 0, 1]);
assert.deepEqual(await all(none), ["a", "b", "c"]);
console.log("js: passed");
