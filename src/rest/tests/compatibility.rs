//! Tests requests as the official client libraries send them, byte for byte where it matters, and
//! the parts of responses that these clients read. The client libraries themselves are tested
//! against a server in `tests/clients`.

use super::*;

/// Adds the headers that all clients send with every request.
fn as_client(ask: Ask<'_>) -> Ask<'_> {
    let ask =
        ask.accept("application/json;odata=minimalmetadata").header("DataServiceVersion", "3.0");
    ask.header("x-ms-client-request-id", "5f0c3a52-5f0c-4a52-8f0c-5f0c3a525f0c")
}

#[test]
fn f49_clients_in_python_sign_with_the_full_form() {
    let site = Site::new();
    let ask = site.post("Tables", r#"{"TableName": "people"}"#);
    let got =
        as_client(ask).header("Content-Type", "application/json;odata=nometadata").send().done(201);
    assert_eq!(got.values("TableName"), ["people"]);
    // This client library annotates values with their types, and expects the annotations in
    // responses.
    let entity = "{\"PartitionKey\": \"p\", \"PartitionKey@odata.type\": \"Edm.String\", \"RowKey\": \"r\", \
                  \"RowKey@odata.type\": \"Edm.String\", \"price\": 4.99, \"price@odata.type\": \"Edm.Double\", \
                  \"big\": \"1152921504606846976\", \"big@odata.type\": \"Edm.Int64\", \"ready\": true, \
                  \"ready@odata.type\": \"Edm.Boolean\", \"count\": 5, \"count@odata.type\": \"Edm.Int32\", \
                  \"day\": \"2023-11-05T08:30:00.000000Z\", \"day@odata.type\": \"Edm.DateTime\"}";
    let got = as_client(site.post("people", entity)).prefer("return-no-content").send().empty(204);
    assert!(got.etag().starts_with("W/\"datetime'"));
    let got = as_client(site.get(&person("r"))).send().done(200);
    assert_eq!(got.member("big").as_deref(), Some("\"1152921504606846976\""));
    assert_eq!(got.values("big@odata.type"), ["Edm.Int64"]);
    assert_eq!(got.values("day@odata.type"), ["Edm.DateTime"]);
    assert_eq!(got.values("day"), ["2023-11-05T08:30:00Z"]);
    // This client library escapes the exclamation marks of a continuation token.
    site.insert("p", "s", "");
    let got = as_client(site.get("people()?$top=1")).send().done(200);
    let token = |name| got.header(name).unwrap().replace('!', "%21");
    let (pk, rk) =
        (token("x-ms-continuation-NextPartitionKey"), token("x-ms-continuation-NextRowKey"));
    let got =
        as_client(site.get(&format!("people()?$top=1&NextPartitionKey={pk}&NextRowKey={rk}")))
            .send();
    assert_eq!(got.done(200).values("RowKey"), ["s"]);
}

#[test]
fn f49_clients_in_javascript_and_net_sign_with_the_lite_form() {
    let site = Site::new();
    let create = site.post("Tables", r#"{"TableName":"people"}"#).prefer("return-no-content");
    as_client(create).lite().send().empty(204);
    let path = "people(PartitionKey='p',RowKey='r')";
    let upsert = as_client(site.patch(path, r#"{"PartitionKey":"p","RowKey":"r","A":1}"#)).lite();
    let etag = upsert.send().empty(204).etag().to_owned();
    let update = as_client(site.put(path, r#"{"PartitionKey":"p","RowKey":"r","B":2}"#)).lite();
    update.matching(&etag).send().empty(204);
    // Some clients read the error code from the body, others from a header.
    let stale = as_client(site.put(path, "{}")).lite().matching(&etag).send();
    let got = stale.fails(412, "UpdateConditionNotSatisfied");
    assert!(got.has("{\"odata.error\":{\"code\":\"UpdateConditionNotSatisfied\""));
    as_client(site.delete(path)).lite().matching("*").send().empty(204);
    let got = as_client(site.delete(path)).lite().matching("*").send();
    got.fails(404, "ResourceNotFound");
}

#[test]
fn f49_clients_in_javascript_read_batch_responses() {
    let site = Site::people();
    // This client library adds empty lines after headers, and omits the final line end.
    let body = format!(
        "--batch_3a9c1f5c\r\ncontent-type: multipart/mixed; boundary=changeset_3a9c1f5c\r\n\r\n\r\n\
         --changeset_3a9c1f5c\r\ncontent-type: application/http\r\ncontent-transfer-encoding: binary\r\n\r\n\
         POST {BASE}people HTTP/1.1\r\naccept: application/json;odata=minimalmetadata\r\n\
         content-type: application/json;odata=nometadata\r\nprefer: return-no-content\r\ndataserviceversion: 3.0\r\n\
         \r\n\r\n{{\"PartitionKey\":\"p\",\"RowKey\":\"1\"}}\r\n\
         --changeset_3a9c1f5c\r\ncontent-type: application/http\r\ncontent-transfer-encoding: binary\r\n\r\n\
         PATCH {BASE}people(PartitionKey=%27p%27,RowKey=%272%27)?$format=application%2Fjson HTTP/1.1\r\n\
         accept: application/json\r\ncontent-type: application/json\r\n\r\n\r\n{{\"A\":1}}\r\n\
         --changeset_3a9c1f5c--\r\n--batch_3a9c1f5c"
    );
    let ask = as_client(site.ask("POST", "$batch")).lite();
    let got = ask.body("multipart/mixed; boundary=batch_3a9c1f5c", &body).send().done(202);
    // This client library reads status, ETag and RowKey of each part.
    let parts: Vec<_> = got.body.split("--changesetresponse_").skip(1).collect();
    assert_eq!(parts.len(), 3);
    for part in &parts[..2] {
        assert!(
            part.contains("\r\nHTTP/1.1 204 No Content\r\n")
                && part.contains("\r\nETag: W/\"datetime'"),
            "{part}"
        );
    }
    assert!(parts[0].contains("RowKey='1')"));
    assert!(parts[2].ends_with("--\r\n") || parts[2].contains("--\r\n--batchresponse_"));
    assert_eq!(site.rows(""), "1 2");
}

#[test]
fn f49_clients_escape_keys_in_two_ways() {
    let site = Site::people();
    // A quote in a key is doubled. Some clients also percent-encode it, others do not.
    let plain = "people(PartitionKey='O''Hara%20x',RowKey='1%2B1')";
    let escaped = "people(PartitionKey=%27O%27%27Hara%20x%27,RowKey=%271%2B1%27)";
    for [write, read] in [[plain, escaped], [escaped, plain]] {
        as_client(site.put(write, "{}")).lite().send().empty(204);
        let got = as_client(site.get(read)).send().done(200);
        assert_eq!(
            (got.values("PartitionKey"), got.values("RowKey")),
            (vec!["O'Hara x"], vec!["1+1"])
        );
    }
    assert_eq!(site.rows("PartitionKey eq 'O''Hara x'"), "1+1");
}
