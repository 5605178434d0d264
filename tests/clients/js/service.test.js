// The account's settings and statistics, its secondary, access policies, and requests that fail
// authentication.

import assert from "node:assert/strict";
import { AzureNamedKeyCredential } from "@azure/data-tables";
import {
  account,
  all,
  check,
  checkTable,
  credential,
  endpoint,
  later,
  refused,
  secondary,
  service,
  serviceAt,
  tableAt,
  tableClient,
  unique,
} from "./helper.js";

const KEYS = { partitionKey: "p", rowKey: "r" };
const WRONG = new AzureNamedKeyCredential(account, "QUJD".repeat(21) + "QQ==");
const START = new Date("2024-01-01T00:00:00Z");
const EXPIRY = new Date("2030-12-31T23:59:59Z");

async function keeping(body) {
  const { logging, hourMetrics, minuteMetrics, cors } = await service.getProperties();
  try {
    await body();
  } finally {
    await service.setProperties({ logging, hourMetrics, minuteMetrics, cors: cors ?? [] });
  }
}

check("settings are stored", () =>
  keeping(async () => {
    const given = {
      logging: {
        version: "1.0",
        delete: true,
        read: false,
        write: true,
        retentionPolicy: { enabled: true, days: 5 },
      },
      hourMetrics: {
        version: "1.0",
        enabled: true,
        includeAPIs: true,
        retentionPolicy: { enabled: true, days: 365 },
      },
      minuteMetrics: { version: "1.0", enabled: false, retentionPolicy: { enabled: false } },
      cors: [
        {
          allowedOrigins: "http://www.example.com,*",
          allowedMethods: "GET,PUT,MERGE",
          maxAgeInSeconds: 60,
          exposedHeaders: "x-ms-meta-*",
          allowedHeaders: "x-ms-meta-a,x-ms-meta-data*",
        },
      ],
    };
    const answer = await service.setProperties(given);
    assert(answer.requestId && answer.version);
    const { logging, hourMetrics, minuteMetrics, cors } = await service.getProperties();
    // The round trip through JSON removes undefined members.
    assert.deepEqual(
      JSON.parse(JSON.stringify({ logging, hourMetrics, minuteMetrics, cors })),
      given,
    );
  }),
);

check("omitted settings are kept, and an empty list of rules clears", () =>
  keeping(async () => {
    const cors = [
      {
        allowedOrigins: "*",
        allowedMethods: "GET",
        maxAgeInSeconds: 1,
        exposedHeaders: "*",
        allowedHeaders: "*",
      },
    ];
    await service.setProperties({ cors });
    const metrics = {
      version: "1.0",
      enabled: true,
      includeAPIs: false,
      retentionPolicy: { enabled: true, days: 7 },
    };
    await service.setProperties({ hourMetrics: metrics });
    const found = await service.getProperties();
    assert.deepEqual([found.cors, found.hourMetrics], [cors, metrics]);
    await service.setProperties({ cors: [] });
    const cleared = await service.getProperties();
    assert.deepEqual([cleared.cors ?? [], cleared.hourMetrics], [[], metrics]);
  }),
);

// The client adds `-secondary` to a numeric address, but not to a host name.
const named = (address) => address.replace("//127.0.0.1", "//localhost");

check("statistics", async () => {
  const { geoReplication } = await serviceAt(named(secondary)).getStatistics();
  assert(["live", "bootstrap", "unavailable"].includes(geoReplication.status));
  if (geoReplication.status === "live") assert(geoReplication.lastSyncTime < later(0.1));
});

checkTable("the secondary is read and not written", async (table) => {
  await table.createEntity({ ...KEYS, A: 1 });
  const copy = tableAt(secondary, table.tableName);
  assert.equal((await copy.getEntity("p", "r")).A, 1);
  const listed = await all(serviceAt(secondary).listTables());
  assert(listed.some((item) => item.name === table.tableName));
  for (const write of [
    () => copy.createEntity({ ...KEYS, rowKey: "new" }),
    () => copy.upsertEntity({ ...KEYS, A: 2 }),
    () => copy.deleteEntity("p", "r"),
    () => copy.submitTransaction([["upsert", { ...KEYS, A: 2 }]]),
  ]) {
    await refused(403, "InsufficientAccountPermissions", write);
  }
  assert.equal((await table.getEntity("p", "r")).A, 1);
});

checkTable("policies are stored and replaced", async (table) => {
  assert.deepEqual([...(await table.getAccessPolicy())], []);
  const policies = [
    { id: "one", accessPolicy: { start: START, expiry: EXPIRY, permission: "r" } },
    { id: "all", accessPolicy: { expiry: EXPIRY, permission: "raud" } },
  ];
  await table.setAccessPolicy(policies);
  assert.deepEqual([...(await table.getAccessPolicy())], policies);
  await table.setAccessPolicy([]);
  assert.deepEqual([...(await table.getAccessPolicy())], []);
});

checkTable("policies that are refused", async (table) => {
  const policy = (id, permission = "r") => ({
    id,
    accessPolicy: { start: START, expiry: EXPIRY, permission },
  });
  const six = Array.from({ length: 6 }, (_, n) => policy(`policy${n}`));
  await table.setAccessPolicy(six.slice(1));
  await refused(400, "InvalidXmlDocument", () => table.setAccessPolicy(six));
  await refused(400, "InvalidXmlNodeValue", () => table.setAccessPolicy([policy("bad", "xyz")]));
  for (const bad of [[policy("twice"), policy("twice")], [policy("x".repeat(65))]]) {
    await assert.rejects(table.setAccessPolicy(bad), { statusCode: 400 });
  }
  assert.equal((await table.getAccessPolicy()).length, 5);
});

check("policies of a missing table", async () => {
  await refused(404, "TableNotFound", () => tableClient(unique()).getAccessPolicy());
  await refused(404, "TableNotFound", () => tableClient(unique()).setAccessPolicy([]));
});

checkTable("the wrong key", async (table) => {
  const client = tableClient(table.tableName, WRONG);
  for (const attempt of [
    () => client.getEntity("p", "r"),
    () => client.createEntity(KEYS),
    () => client.submitTransaction([["create", KEYS]]),
    () => all(serviceAt(endpoint, WRONG).listTables()),
    () => serviceAt(endpoint, WRONG).getProperties(),
  ]) {
    await refused(403, "AuthenticationFailed", attempt);
  }
  assert.deepEqual(await all(table.listEntities()), []);
});

checkTable("a clock that is wrong", async (table) => {
  for (const [minutes, right] of [
    [-20, false],
    [-10, true],
    [10, true],
    [20, false],
  ]) {
    const client = tableClient(table.tableName);
    client.pipeline.addPolicy(
      {
        name: "clock",
        sendRequest(request, next) {
          request.headers.set("x-ms-date", new Date(Date.now() + minutes * 60_000).toUTCString());
          return next(request);
        },
      },
      { beforePolicies: ["tablesNamedKeyCredentialPolicy"] },
    );
    const attempt = () => client.upsertEntity(KEYS);
    await (right ? attempt() : refused(403, "AuthenticationFailed", attempt));
  }
});

checkTable("versions of the interface", async (table) => {
  for (const version of ["2013-08-15", "2015-12-11", "2019-02-02", "2020-12-06", "2026-06-06"]) {
    const client = tableAt(endpoint, table.tableName, credential, { version });
    assert.equal((await client.upsertEntity(KEYS)).version, version);
  }
  const unknown = tableAt(endpoint, table.tableName, credential, { version: "2001-01-01" });
  await refused(400, "InvalidHeaderValue", () => unknown.upsertEntity(KEYS));
});

checkTable("the body of an error", async (table) => {
  const error = await refused(404, "ResourceNotFound", () => table.getEntity("p", "r"));
  const { message } = JSON.parse(error.response.bodyAsText)["odata.error"];
  const id = error.response.headers.get("x-ms-request-id");
  const time = "Time:[-0-9]{10}T[:0-9]{8}\\.\\d{7}Z";
  const expected = `^The specified resource does not exist\\.\\nRequestId:${id}\\n${time}$`;
  assert.match(message.value, new RegExp(expected));
  assert.equal(message.lang, "en-US");
});
