// The server's address, clients for it, and the functions that declare tests.
//
// The suite starts no server. It reads these variables from the environment:
//   ROWSTONE_CONNECTION  the connection string of an account that it may change;
//   ROWSTONE_SECONDARY   the address of the account's secondary, by default its own with
//                        `-secondary` appended;
//   ROWSTONE_PEER        `azurite` if the server is that emulator: emulator.js then lists the
//                        tests that must fail.
// The tests expect the behaviour of the production service.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import {
  AzureNamedKeyCredential,
  AzureSASCredential,
  TableClient,
  TableServiceClient,
} from "@azure/data-tables";
import { EMULATOR } from "./emulator.js";

export const CONNECTION = process.env.ROWSTONE_CONNECTION;
assert(CONNECTION, "ROWSTONE_CONNECTION is not set");
const settings = Object.fromEntries(
  CONNECTION.split(";")
    .filter(Boolean)
    .map((part) => part.split(/=(.*)/s).slice(0, 2)),
);

export const account = settings.AccountName;
export const endpoint = settings.TableEndpoint.replace(/\/$/, "");
export const secondary = process.env.ROWSTONE_SECONDARY ?? `${endpoint}-secondary`;
export const credential = new AzureNamedKeyCredential(account, settings.AccountKey);
// Failures must be reported, not retried.
export const options = { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } };

export function serviceAt(address, by = credential, more = {}) {
  return new TableServiceClient(address, by, { ...options, ...more });
}

export function tableAt(address, name, by = credential, more = {}) {
  return new TableClient(address, name, by, { ...options, ...more });
}

export const service = serviceAt(endpoint);
export const tableClient = (name, by = credential) => tableAt(endpoint, name, by);
export const signedService = (token) => serviceAt(endpoint, new AzureSASCredential(token));
export const signedTable = (name, token) => tableClient(name, new AzureSASCredential(token));
export const unique = (prefix = "t") => prefix + randomUUID().replaceAll("-", "");

// Declares a test. If emulator.js lists it, it must fail with the emulator, or the list is wrong.
export function check(name, body) {
  const emulated = process.env.ROWSTONE_PEER === "azurite";
  const known = emulated && EMULATOR.find(([pattern]) => name.match(pattern)?.[0] === name);
  if (!known) return test(name, body);
  return test(`${name} (the emulator: ${known[1]})`, () => assert.rejects(async () => body()));
}

// Declares a test with its own table.
export function checkTable(name, body) {
  check(name, async () => {
    const table = tableClient(unique());
    await table.createTable();
    try {
      await body(table);
    } finally {
      await table.deleteTable();
    }
  });
}

// Returns the service's code in an error: of a transaction, or in the body, JSON or XML.
export function codeOf(error) {
  const text = error.response?.bodyAsText ?? "";
  const found = /<Code>(.*?)<\/Code>/.exec(text) ?? /"code":\s*"(.*?)"/.exec(text);
  return found?.[1] ?? error.code;
}

// Checks that the attempt raises an error with this status and code.
export async function refused(status, code, attempt) {
  let error;
  try {
    await attempt();
  } catch (caught) {
    error = caught;
  }
  assert(error, `was not refused; expected ${status} ${code}`);
  assert.deepEqual([error.statusCode, codeOf(error)], [status, code], error.stack);
  return error;
}

export async function all(iterator) {
  const found = [];
  for await (const item of iterator) found.push(item);
  return found;
}

// Returns the properties without keys and without the members that the server adds.
export function properties(entity) {
  const { partitionKey, rowKey, etag, timestamp, "odata.metadata": context, ...rest } = entity;
  return rest;
}

export const later = (hours) => new Date(Date.now() + hours * 3600_000);
export const ETAG = /^W\/"datetime'\d{4}-\d\d-\d\dT\d\d%3A\d\d%3A\d\d(\.\d{1,7})?Z'"$/;
