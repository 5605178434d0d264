//! Tests the features common to all operations: addresses, headers, versions, metadata, media
//! types.

use super::*;

const NOT_ALLOWED: &str = "The requested method is not allowed on the specified resource.";

#[test]
fn f08_addresses_with_the_account_in_the_host() {
    let site = Site::people();
    site.insert("p", "r", "");
    for host in [
        "devstoreaccount1.table.localhost:10002",
        "devstoreaccount1.table.localhost",
        "DevStoreAccount1.Table.LocalHost:443",
    ] {
        let got = site.ask_path("GET", "/people()").header("Host", host).send().done(200);
        assert!(
            got.has(&format!("\"odata.metadata\":\"http://{host}/$metadata#people\"")),
            "{}",
            got.body
        );
        assert_eq!(got.values("RowKey"), ["r"]);
    }
    let host = "acme.table.core.windows.net";
    let ask = site.ask_path("POST", "/Tables").header("Host", host).encrypted();
    let got =
        ask.json(r#"{"TableName":"Devices"}"#).signed_by(ACME, key(ACME_KEYS[0])).send().done(201);
    assert_eq!(
        got.header("Location"),
        Some("https://acme.table.core.windows.net/Tables('Devices')")
    );
    // A key of one account does not give access to the tables of another.
    site.get("Devices()").send().fails(404, "TableNotFound");
}

#[test]
fn f08_addresses_with_the_account_in_the_path() {
    let site = Site::people();
    for host in ["127.0.0.1:10002", "localhost", "[::1]:10002"] {
        let got = site.get("Tables").header("Host", host).send().done(200);
        assert!(
            got.has(&format!("\"http://{host}/devstoreaccount1/$metadata#Tables\"")),
            "{}",
            got.body
        );
    }
    let acme = site.ask_path("GET", "/acme/Tables").header("Host", "storage.example.org");
    let got = acme.signed_by(ACME, key(ACME_KEYS[0])).send().done(200);
    assert!(got.has("\"http://storage.example.org/acme/$metadata#Tables\""), "{}", got.body);
    // The slash after the account may be omitted.
    site.ask_path("GET", "/devstoreaccount1?restype=service&comp=properties").send().done(200);
    let got = site.get("Tables").header("Host", "").send();
    got.fails(400, "HostInformationNotPresent");
    site.get("Tables").without("Host").send().fails(400, "HostInformationNotPresent");
    let text = "The specified resource does not exist.";
    site.ask_path("GET", "/nobody/Tables").send().refused(404, "ResourceNotFound", text);
}

#[test]
fn f08_addresses_of_the_secondary_are_for_reading() {
    let site = Site::people();
    site.insert("p", "r", "");
    let read = |path: &str| site.ask_path("GET", &format!("/devstoreaccount1-secondary/{path}"));
    assert_eq!(read("people()").send().done(200).values("RowKey"), ["r"]);
    read(&person("r")).send().done(200);
    let got = read("Tables").send().done(200);
    assert!(
        got.has("\"http://127.0.0.1:10002/devstoreaccount1-secondary/$metadata#Tables\""),
        "{}",
        got.body
    );
    let host = "devstoreaccount1-secondary.table.localhost";
    site.ask_path("GET", "/people()").header("Host", host).send().done(200);
    let text = "Write operations are not allowed.";
    for (method, path) in [
        ("POST", "people"),
        ("PUT", "people(PartitionKey='p',RowKey='r')"),
        ("PATCH", "people(PartitionKey='p',RowKey='r')"),
        ("DELETE", "people(PartitionKey='p',RowKey='r')"),
        ("POST", "Tables"),
        ("DELETE", "Tables('people')"),
        ("POST", "$batch"),
    ] {
        let ask = site.ask_path(method, &format!("/devstoreaccount1-secondary/{path}"));
        let got = ask.matching("*").json("{}").send();
        got.refused(403, "InsufficientAccountPermissions", text);
    }
    assert_eq!(site.rows(""), "r");
}

#[test]
fn f08_addresses_of_entities() {
    let site = Site::people();
    site.insert("A'a", "x,y", "");
    for path in [
        "people(PartitionKey='A''a',RowKey='x,y')",
        "people(RowKey='x,y',PartitionKey='A''a')",
        "people(%20PartitionKey%20=%20'A''a'%20,%20RowKey='x%2Cy'%20)",
        "people(PartitionKey=%27A%27%27a%27,RowKey=%27x,y%27)",
        "People(PartitionKey='A''a',RowKey='x,y')",
    ] {
        site.get(path).send().done(200);
    }
    for path in ["people(PartitionKey='x')", "people(RowKey='x')"] {
        site.get(path).send().fails(400, "InvalidInput");
        site.put(path, "{}").send().fails(400, "InvalidInput");
    }
    for path in [
        "people('x')",
        "people(PartitionKey=x,RowKey='y')",
        "people(PartitionKey='x',RowKey='y'",
        "people(PartitionKey='x',RowKey='y')z",
        "people(PartitionKey='x' RowKey='y')",
        "people(PartitionKey='A'a',RowKey='y')",
        "people(PartitionKey='x',PartitionKey='y')",
        "people(PartitionKey='x',RowKey='y',Other='z')",
    ] {
        site.get(path).send().refused(400, "InvalidInput", "Bad Request - Error in query syntax.");
    }
    site.get("people(PartitionKey='%ZZ',RowKey='y')").send().fails(400, "RequestUrlFailedToParse");
    site.get("people(PartitionKey='%FF',RowKey='y')").send().fails(400, "RequestUrlFailedToParse");
}

#[test]
fn f08_addresses_of_clients_that_take_a_table_for_the_account() {
    let site = Site::people();
    let body = r#"{"TableName":"people"}"#;
    let text = "The table specified does not exist.";
    site.post("nobody/Tables", body).send().refused(404, "TableNotFound", text);
    site.delete("nobody/Tables('nobody')").send().refused(404, "TableNotFound", text);
    let text = "The values are not specified for all properties in the entity.";
    site.post("people/Tables", body).send().refused(400, "PropertiesNeedValue", text);
    let batch = "multipart/mixed; boundary=batch_1";
    let ask = site.post("people/$batch", "").header("Content-Type", batch);
    ask.send().fails(415, "MediaTypeNotSupported");
    let text = "The number of keys specified in the URI does not match number of key properties \
                for the resource 'devstoreaccount1.people'.";
    site.delete("people/Tables('people')").send().refused(400, "InvalidInput", text);
}

#[test]
fn f08_addresses_without_a_resource() {
    let site = Site::people();
    let text = "The requested URI does not represent any resource on the server.";
    for path in ["people/p/r", "$other", "people/x()", ""] {
        for method in ["GET", "PUT", "DELETE", "POST"] {
            site.ask(method, path).json("{}").send().refused(400, "InvalidUri", text);
        }
    }
    site.get("$metadata").send().fails(501, "NotImplemented");
    for (method, path) in [
        ("PUT", "people"),
        ("PATCH", "people()"),
        ("DELETE", "people"),
        ("POST", "people(PartitionKey='p',RowKey='r')"),
        ("PUT", "Tables('people')"),
        ("POST", "Tables('people')"),
        ("GET", "$batch"),
        ("PUT", "$batch"),
        ("TRACE", "people"),
        ("LOCK", "people(PartitionKey='p',RowKey='r')"),
        ("get", "people"),
    ] {
        let got = site.ask(method, path).json("{}").matching("*").send();
        got.refused(405, "MethodNotAllowed", NOT_ALLOWED);
    }
}

#[test]
fn f08_addresses_answer_head_requests() {
    let site = Site::people();
    site.insert("p", "r", "");
    // The connection, not the service, omits the body of a response to HEAD.
    for (path, etag) in [("people()", None), ("Tables", None), (&*person("r"), Some(NOW_ETAG))] {
        let (head, get) = (site.ask("HEAD", path).send().done(200), site.get(path).send());
        assert_eq!(head.header("ETag"), etag);
        assert_eq!(head.header("Content-Type"), get.header("Content-Type"));
        assert_eq!(head.body, get.body);
    }
    site.ask("HEAD", &person("none")).send().done(404);
}

#[test]
fn f09_headers_that_every_response_has() {
    let site = Site::people();
    site.insert("p", "r", "");
    for (ask, status) in [
        (site.get("people()"), 200),
        (site.get("Tables"), 200),
        (site.get("nobody()"), 404),
        (site.get("people?comp=acl"), 200),
        (site.get("?restype=service&comp=properties"), 200),
        (site.put(&person("r"), "{}"), 204),
        (site.delete(&person("none")), 400),
        (site.get("people()").unsigned(), 403),
        (site.ask("OPTIONS", "people"), 400),
    ] {
        let got = ask.header("x-ms-client-request-id", "c-1").send().done(status);
        assert_eq!(got.header("x-ms-request-id"), Some(&*got.request_id));
        assert_eq!(got.header("x-ms-version"), Some("2019-02-02"));
        assert_eq!(got.header("X-Content-Type-Options"), Some("nosniff"));
        assert_eq!(got.header("Server"), Some("Windows-Azure-Table/1.0 Microsoft-HTTPAPI/2.0"));
        assert_eq!(got.header("x-ms-client-request-id"), Some("c-1"));
    }
    let is_guid = site.service.new_id().parse::<crate::model::Guid>();
    assert!(is_guid.is_ok());
    assert_ne!(site.service.new_id(), site.service.new_id());
}

#[test]
fn f09_headers_about_caching() {
    let site = Site::people();
    let uncached = |got: Got| got.header("Cache-Control") == Some("no-cache");
    assert!(uncached(site.get("people()").send().done(200)));
    assert!(uncached(site.put(&person("r"), "{}").send().done(204)));
    assert!(uncached(site.get(&person("r")).send().done(200)));
    assert!(uncached(site.get(&person("none")).send().done(404)));
    assert!(uncached(site.put(&person("r"), "{}").matching("test").send().done(400)));
    let conflict = site.post("people", r#"{"PartitionKey":"p","RowKey":"r"}"#).send().done(409);
    assert!(uncached(conflict));
    assert!(!uncached(site.get("people?comp=acl").send().done(200)));
    assert!(!uncached(site.get("?restype=service&comp=properties").send().done(200)));
}

#[test]
fn f09_headers_of_clients_are_echoed_up_to_1024_characters() {
    let site = Site::people();
    let id = "x".repeat(1024);
    let got = site.get("Tables").header("x-ms-client-request-id", &id).send().done(200);
    assert_eq!(got.header("x-ms-client-request-id"), Some(&*id));
    let got =
        site.get("Tables").header("x-ms-client-request-id", &format!("{id}x")).send().done(200);
    assert_eq!(got.header("x-ms-client-request-id"), None);
    assert_eq!(site.get("Tables").send().header("x-ms-client-request-id"), None);
}

#[test]
fn f09_versions() {
    let site = Site::people();
    for version in
        ["2013-08-15", "2015-12-11", "2017-11-09", "2019-02-02", "2020-12-06", "2026-06-06"]
    {
        let got = site.get("Tables").header("x-ms-version", version).send().done(200);
        assert_eq!(got.header("x-ms-version"), Some(version));
    }
    assert_eq!(
        site.get("Tables").without("x-ms-version").send().done(200).header("x-ms-version"),
        Some("2019-02-02")
    );
    for version in ["2019-02-03", "x", "", "2030-01-01", "2019-2-2"] {
        let text = "The value for one of the HTTP headers is not in the correct format.";
        let got = site.get("Tables").header("x-ms-version", version).send();
        got.refused(400, "InvalidHeaderValue", text);
        let got = site.get("people?comp=acl").header("x-ms-version", version).send();
        let details =
            format!("<HeaderName>x-ms-version</HeaderName><HeaderValue>{version}</HeaderValue>");
        got.refused_xml(400, "InvalidHeaderValue", text, &details);
    }
    // The query parameter overrides the header.
    let got = site.get("Tables?api-version=2017-11-09").send().done(200);
    assert_eq!(got.header("x-ms-version"), Some("2017-11-09"));
    site.get("Tables?api-version=1").send().fails(400, "InvalidQueryParameterValue");
}

#[test]
fn f09_versions_of_the_data_service() {
    let site = Site::people();
    for version in ["1.0", "2.0", "3.0", "3.0;", "3.0;NetFx", "1.0;NetFx", ""] {
        site.get("people()").header("DataServiceVersion", version).send().done(200);
    }
    for version in ["3.0", "3.0;NetFx"] {
        site.get("people()").header("MaxDataServiceVersion", version).send().done(200);
    }
    for header in ["DataServiceVersion", "MaxDataServiceVersion"] {
        for version in ["4.0", "x", "3"] {
            site.get("people()").header(header, version).send().fails(400, "InvalidHeaderValue");
        }
    }
    for version in ["1.0", "2.0;NetFx"] {
        let got = site.get("people()").header("MaxDataServiceVersion", version).send();
        got.refused(415, "JsonFormatNotSupported", "JSON format is not supported.");
    }
    // Before `DataServiceVersion` 3.0 there are no preferences, so the server ignores `Prefer`.
    let ask =
        site.post("people", r#"{"PartitionKey":"p","RowKey":"r"}"#).prefer("return-no-content");
    let got = ask.header("DataServiceVersion", "1.0;NetFx").send().done(201);
    assert_eq!(got.header("Preference-Applied"), None);
}

#[test]
fn f09_headers_may_be_left_out() {
    let site = Site::people();
    let mut ask = site.ask("POST", "people").without("x-ms-version");
    ask.request.body = br#"{"PartitionKey":"p","RowKey":"r"}"#.to_vec().into();
    ask.send().done(201);
    let ask = site.put(&person("r"), "{}").header("Accept-Charset", "UTF-8");
    ask.header("Content-Type", "application/json;odata=nometadata").send().done(204);
    for timeout in ["1", "30", "90", "99999999999999999999"] {
        site.get(&format!("people()?timeout={timeout}")).send().done(200);
    }
    for timeout in ["0", "-1", "x", ""] {
        site.get(&format!("people()?timeout={timeout}"))
            .send()
            .fails(400, "InvalidQueryParameterValue");
    }
}

#[test]
fn f29_metadata_of_one_entity() {
    let site = Site::new();
    let host = "acme.table.core.windows.net";
    let acme = |method: &str, path: &str| {
        let ask = site.ask_path(method, path).header("Host", host).encrypted();
        ask.signed_by(ACME, key(ACME_KEYS[1]))
    };
    acme("POST", "/Tables").json(r#"{"TableName":"Devices"}"#).send().done(201);
    site.at(NOW);
    let sent = r#"{"PartitionKey":"zone-7","RowKey":"0042","Label":"pump","Active":true,"Rpm":1450,"Load":0.75,"Gain@odata.type":"Edm.Double","Gain":"2.0",
 "Serial@odata.type":"Edm.Int64","Serial":"9007199254740993","Built@odata.type":"Edm.DateTime","Built":"2023-11-05T08:30:00Z",
 "Tag@odata.type":"Edm.Guid","Tag":"0f8fad5b-d9cb-469f-a165-70867728950e","Blob@odata.type":"Edm.Binary","Blob":"AQID"}"#;
    acme("POST", "/Devices").json(sent).prefer("return-no-content").send().empty(204);
    let read = |level: &str| {
        let ask = acme("GET", "/Devices(PartitionKey='zone-7',RowKey='0042')");
        let got = ask.accept(&format!("application/json;odata={level}")).send();
        assert_eq!(
            got.header("Content-Type"),
            Some(&*format!("application/json;odata={level};streaming=true;charset=utf-8"))
        );
        got
    };
    // Properties are returned in the order of their names. The service guarantees no order.
    let bare = [
        "\"Active\":true",
        "\"Blob\":\"AQID\"",
        "\"Built\":\"2023-11-05T08:30:00Z\"",
        "\"Gain\":2.0",
        "\"Label\":\"pump\"",
        "\"Load\":0.75",
        "\"Rpm\":1450",
        "\"Serial\":\"9007199254740993\"",
        "\"Tag\":\"0f8fad5b-d9cb-469f-a165-70867728950e\"",
    ]
    .join(",");
    let mut typed = bare.clone();
    for (name, edm) in
        [("Blob", "Binary"), ("Built", "DateTime"), ("Serial", "Int64"), ("Tag", "Guid")]
    {
        let annotated = format!("\"{name}@odata.type\":\"Edm.{edm}\",\"{name}\":");
        typed = typed.replace(&format!("\"{name}\":"), &annotated);
    }
    let keys = "\"PartitionKey\":\"zone-7\",\"RowKey\":\"0042\"";
    let time = "\"Timestamp\":\"2024-02-03T04:05:06.1234567Z\"";
    let etag = "\"odata.etag\":\"W/\\\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\\\"\"";
    let context =
        "\"odata.metadata\":\"https://acme.table.core.windows.net/$metadata#Devices/@Element\"";
    read("nometadata").json(200, &format!("{{{keys},{time},{bare}}}"));
    read("minimalmetadata").json(200, &format!("{{{context},{etag},{keys},{time},{typed}}}"));
    let link = "Devices(PartitionKey='zone-7',RowKey='0042')";
    read("fullmetadata").json(
        200,
        &format!(
            "{{{context},\"odata.type\":\"acme.Devices\",\
             \"odata.id\":\"https://acme.table.core.windows.net/{link}\",{etag},\
             \"odata.editLink\":\"{link}\",{keys},\"Timestamp@odata.type\":\"Edm.DateTime\",{time},{typed}}}"
        ),
    );
}

#[test]
fn f29_metadata_of_lists() {
    let site = Site::people();
    site.insert(
        "p",
        "r",
        "\"N@odata.type\":\"Edm.Int64\",\"N\":\"1\",\"D@odata.type\":\"Edm.Double\",\"D\":\"NaN\"",
    );
    let list = |level: &str| {
        site.get("people()").accept(&format!("application/json;odata={level}")).send()
    };
    let etag = "\"odata.etag\":\"W/\\\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\\\"\"";
    let keys = "\"PartitionKey\":\"p\",\"RowKey\":\"r\"";
    let time = "\"Timestamp\":\"2024-02-03T04:05:06.1234567Z\"";
    let typed =
        "\"D@odata.type\":\"Edm.Double\",\"D\":\"NaN\",\"N@odata.type\":\"Edm.Int64\",\"N\":\"1\"";
    list("nometadata")
        .json(200, &format!("{{\"value\":[{{{keys},{time},\"D\":\"NaN\",\"N\":\"1\"}}]}}"));
    let context = format!("\"odata.metadata\":\"{BASE}$metadata#people\"");
    list("minimalmetadata")
        .json(200, &format!("{{{context},\"value\":[{{{etag},{keys},{time},{typed}}}]}}"));
    let link = person("r");
    list("fullmetadata").json(
        200,
        &format!(
            "{{{context},\"value\":[{{\"odata.type\":\"devstoreaccount1.people\",\"odata.id\":\"{BASE}{link}\",\
             {etag},\"odata.editLink\":\"{link}\",{keys},\"Timestamp@odata.type\":\"Edm.DateTime\",{time},\
             {typed}}}]}}"
        ),
    );
}

#[test]
fn f30_media_types_that_are_supported() {
    let site = Site::people();
    for (accept, level) in [
        ("application/json;odata=nometadata", "nometadata"),
        ("application/json; odata=nometadata", "nometadata"),
        ("Application/JSON;OData=NoMetadata", "nometadata"),
        ("application/json;odata=minimalmetadata", "minimalmetadata"),
        ("application/json", "minimalmetadata"),
        ("*/*", "minimalmetadata"),
        ("", "minimalmetadata"),
        ("application/json;odata=fullmetadata", "fullmetadata"),
        ("application/atom+xml,application/json;odata=fullmetadata", "fullmetadata"),
    ] {
        let got = site.get("people()").accept(accept).send().done(200);
        let media = format!("application/json;odata={level};streaming=true;charset=utf-8");
        assert_eq!(got.header("Content-Type"), Some(&*media), "{accept}");
    }
}

#[test]
fn f30_media_types_that_are_not_supported() {
    let site = Site::people();
    for (accept, code, text) in [
        ("application/atom+xml", "AtomFormatNotSupported", "Atom format is not supported."),
        (
            "application/atom+xml;type=feed,application/xml",
            "AtomFormatNotSupported",
            "Atom format is not supported.",
        ),
        (
            "application/json;odata=verbose",
            "JsonVerboseFormatNotSupported",
            "JSON Verbose format is not supported.",
        ),
        ("text/html", "MediaTypeNotSupported", "None of the provided media types are supported"),
        (
            "application/xml",
            "MediaTypeNotSupported",
            "None of the provided media types are supported",
        ),
        (
            "application/json;odata=some",
            "MediaTypeNotSupported",
            "None of the provided media types are supported",
        ),
    ] {
        site.get("people()").accept(accept).send().refused(415, code, text);
        site.get("Tables").accept(accept).send().refused(415, code, text);
        let insert = site.post("people", r#"{"PartitionKey":"p","RowKey":"r"}"#);
        insert.accept(accept).send().refused(415, code, text);
    }
    assert_eq!(site.rows(""), "");
    let text = "JSON format is not supported.";
    for version in ["2009-09-19", "2012-02-12"] {
        let got = site.get("people()").header("x-ms-version", version).send();
        got.refused(415, "JsonFormatNotSupported", text);
    }
    for (media, code) in [
        ("application/atom+xml", "AtomFormatNotSupported"),
        ("text/plain", "MediaTypeNotSupported"),
        ("application/xml", "MediaTypeNotSupported"),
    ] {
        let body = r#"{"PartitionKey":"p","RowKey":"r"}"#;
        site.ask("POST", "people").body(media, body).send().fails(415, code);
        site.ask("PUT", &person("r")).body(media, "{}").send().fails(415, code);
    }
}

#[test]
fn known_clients_get_the_time_of_the_database() {
    let site = Site::people();
    site.at("2024-02-03T06:00:00Z");
    site.insert("p", "r", "");
    // The clock was wrong, and is set back.
    site.at(NOW);
    let time = site.account().db.engine().reader().session_time();
    let date = time::http(DateTime::from_ticks(time).unwrap());
    assert_eq!(date, "Sat, 03 Feb 2024 06:00:00 GMT");
    for address in ["Tables", "people()", "nothing()", "%24rowstone/nothing"] {
        assert_eq!(site.get(address).send().header("date"), Some(&*date), "{address}");
    }
    // Signatures are checked by the clock.
    assert_eq!(site.get("Tables").unsigned().send().done(403).header("date"), None);
    site.at("2024-02-03T06:00:00Z");
    assert_eq!(site.get("Tables").send().header("date"), None);
}
