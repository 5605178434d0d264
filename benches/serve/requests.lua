-- Requests of one kind for wrk: get, insert, batch or page. Environment: KIND, TOKEN (a shared
-- access signature), PARTITIONS (of 1,000 entities each in the table), RUN (a prefix that makes the
-- keys of inserts unique).
local kind, token = os.getenv("KIND"), os.getenv("TOKEN")
local partitions, run = tonumber(os.getenv("PARTITIONS")), os.getenv("RUN")
local account = "/devstoreaccount1"
local threads = 0
local made = 0

function setup(thread)
  thread:set("id", threads)
  threads = threads + 1
end

function init()
  math.randomseed(42 + id)
end

local function entity(pk, rk)
  return string.format(
    '{"PartitionKey":"%s","RowKey":"%s","Device":"sensor-%s","At@odata.type":"Edm.DateTime","At":"2026-01-31T10:20:30.5Z",' ..
    '"Temperature":21.5,"Humidity":48,"Online":true,"Note":"steady, no alarms since the last service"}', pk, rk, rk)
end

local headers = {
  ["x-ms-version"] = "2019-02-02",
  ["DataServiceVersion"] = "3.0",
  ["Accept"] = "application/json;odata=nometadata",
  ["Prefer"] = "return-no-content",
}
local function with(name, value)
  local all = { [name] = value }
  for key, given in pairs(headers) do all[key] = given end
  return all
end
local json = with("Content-Type", "application/json")
local mixed = with("Content-Type", "multipart/mixed; boundary=batch_b")
local reading = { ["x-ms-version"] = "2019-02-02", ["Accept"] = "application/json;odata=nometadata" }

local makers = {
  get = function()
    local path = string.format("%s/bench(PartitionKey='p%05d',RowKey='r%05d')?%s", account, math.random(0, partitions - 1), math.random(0, 999), token)
    return wrk.format("GET", path, reading)
  end,
  page = function()
    local path = string.format("%s/bench()?$filter=PartitionKey%%20eq%%20'p%05d'&%s", account, math.random(0, partitions - 1), token)
    return wrk.format("GET", path, reading)
  end,
  insert = function()
    made = made + 1
    local body = entity(string.format("%s-%d-%d", run, id, made % 64), string.format("%09d", made))
    return wrk.format("POST", account .. "/bench?" .. token, json, body)
  end,
  batch = function()
    made = made + 1
    local pk = string.format("%s-%d-%d", run, id, made)
    local parts = { "--batch_b\r\nContent-Type: multipart/mixed; boundary=changeset_c\r\n\r\n" }
    for i = 0, 99 do
      parts[#parts + 1] = "--changeset_c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nPOST http://" ..
        wrk.host .. ":" .. wrk.port .. account .. "/bench HTTP/1.1\r\nContent-Type: application/json\r\n" ..
        "Accept: application/json;odata=nometadata\r\nDataServiceVersion: 3.0\r\nPrefer: return-no-content\r\n\r\n" ..
        entity(pk, string.format("%05d", i)) .. "\r\n"
    end
    parts[#parts + 1] = "--changeset_c--\r\n--batch_b--\r\n"
    return wrk.format("POST", account .. "/$batch?" .. token, mixed, table.concat(parts))
  end,
}
request = makers[kind]

-- A batch answers 202 even if it failed, so its contents are checked. Only the beginning of a body
-- is read.
local failed = 0
function response(status, _, body)
  local inner = kind == "batch" and body:match("HTTP/1.1 (%d+)")
  if status >= 400 or (inner and tonumber(inner) >= 400) then
    failed = failed + 1
    if failed == 1 then io.stderr:write(status, " ", body:sub(1, 400), "\n") end
  end
end

function done(summary, latency)
  io.write(string.format("RESULT %d %d %d %d %d\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), summary.errors.status))
end
