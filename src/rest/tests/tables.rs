//! Tests operations on tables: names, listing, reading one, creating, deleting.

use super::*;

const CHARACTERS: &str = "The specifed resource name contains invalid characters.";
const LENGTH: &str = "The specified resource name length is not within the permissible limits.";

impl Site {
    fn create(&self, name: &str) -> Ask<'_> {
        self.post("Tables", &format!("{{\"TableName\":\"{name}\"}}"))
    }
}

#[test]
fn f01_table_names_are_letters_and_digits() {
    let site = Site::new();
    let longest = "a".repeat(63);
    for name in ["abc", "A1b2C3", "zzz", &longest] {
        site.create(name).send().done(201);
    }
    for name in ["1abc", "a-b", "a_bc", "a.bc", "täble", "a bc", "$abc", "$MetricsX", "a/b"] {
        site.create(name).send().refused(400, "InvalidResourceName", CHARACTERS);
    }
    for name in ["a", "ab", "", &format!("{longest}a")] {
        site.create(name).send().refused(400, "OutOfRangeInput", LENGTH);
    }
}

#[test]
fn f01_names_that_no_table_can_have_in_addresses() {
    let site = Site::new();
    let long = "a".repeat(64);
    let keys = r#"{"PartitionKey":"p","RowKey":"r"}"#;
    for (name, code, text) in [
        ("1table", "InvalidResourceName", CHARACTERS),
        ("my_table", "InvalidResourceName", CHARACTERS),
        ("a%2F%2F", "InvalidResourceName", CHARACTERS),
        ("aa", "OutOfRangeInput", LENGTH),
        (&long, "OutOfRangeInput", LENGTH),
    ] {
        let entity = format!("{name}(PartitionKey='p',RowKey='r')");
        site.get(&format!("{name}()")).send().refused(400, code, text);
        site.get(&entity).send().refused(400, code, text);
        site.post(name, keys).send().refused(400, code, text);
        site.patch(&entity, "{}").send().refused(400, code, text);
        site.delete(&entity).matching("*").send().refused(400, code, text);
        site.get(&format!("{name}?comp=acl")).send().refused_xml(400, code, text, "");
    }
}

#[test]
fn f01_table_names_are_the_same_in_any_case() {
    let site = Site::new();
    site.create("People").send().done(201);
    for name in ["People", "people", "PEOPLE"] {
        let text = "The table specified already exists.";
        site.create(name).send().refused(409, "TableAlreadyExists", text);
    }
    let body = r#"{"PartitionKey":"p","RowKey":"r"}"#;
    site.post("pEOPLE", body).send().done(201);
    let got = site.get("people()").send().done(200);
    assert_eq!(got.values("RowKey"), ["r"]);
    // The name is returned as it was spelled at creation.
    assert!(got.has(&format!("\"odata.metadata\":\"{BASE}$metadata#People\"")), "{}", got.body);
    let got = site.get("Tables").send().done(200);
    assert_eq!(got.values("TableName"), ["People"]);
    site.delete("Tables('PEOPLE')").send().empty(204);
    site.get("people()").send().fails(404, "TableNotFound");
}

#[test]
fn f01_table_names_that_are_reserved() {
    let site = Site::new();
    for name in ["Tables", "tables", "TABLES"] {
        site.create(name).send().refused(
            400,
            "InvalidInput",
            "One of the request inputs is not valid.",
        );
    }
    for name in ["Tables", "ab", "a-b", "1abc", "nobody", "$MetricsX", ""] {
        let text = "The specified resource does not exist.";
        let got = site.delete(&format!("Tables('{name}')")).send();
        got.refused(404, "ResourceNotFound", text);
    }
}

#[test]
fn f10_query_tables_with_each_level() {
    let site = Site::new();
    site.get("Tables")
        .send()
        .json(200, &format!("{{\"odata.metadata\":\"{BASE}$metadata#Tables\",\"value\":[]}}"));
    for name in ["Zebra", "apple", "Mango"] {
        site.create(name).send().done(201);
    }
    let got = site.get("Tables()").send().json(
        200,
        &format!(
            "{{\"odata.metadata\":\"{BASE}$metadata#Tables\",\"value\":[{{\"TableName\":\"apple\"}},\
             {{\"TableName\":\"Mango\"}},{{\"TableName\":\"Zebra\"}}]}}"
        ),
    );
    assert_eq!(got.header("Content-Type"), Some(MINIMAL));
    assert_eq!(got.header("Cache-Control"), Some("no-cache"));
    assert_eq!(got.header("x-ms-continuation-NextTableName"), None);
    let none = site.get("Tables").accept("application/json;odata=nometadata").send();
    none.json(
        200,
        r#"{"value":[{"TableName":"apple"},{"TableName":"Mango"},{"TableName":"Zebra"}]}"#,
    );
    let full = site.get("Tables?$top=1").accept("application/json;odata=fullmetadata").send();
    full.json(
        200,
        &format!(
            "{{\"odata.metadata\":\"{BASE}$metadata#Tables\",\"value\":[{{\
             \"odata.type\":\"devstoreaccount1.Tables\",\"odata.id\":\"{BASE}Tables('apple')\",\
             \"odata.editLink\":\"Tables('apple')\",\"TableName\":\"apple\"}}]}}"
        ),
    );
}

#[test]
fn f10_query_tables_gets_one_table() {
    let site = Site::new();
    site.create("People").send().done(201);
    for address in ["Tables('People')", "Tables('people')", "Tables(TableName='people')"] {
        let body = format!(
            "{{\"odata.metadata\":\"{BASE}$metadata#Tables/@Element\",\"TableName\":\"People\"}}"
        );
        let got = site.get(address).send().json(200, &body);
        assert_eq!(got.header("ETag"), None);
    }
    let none = site.get("Tables('People')").accept("application/json;odata=nometadata").send();
    none.json(200, r#"{"TableName":"People"}"#);
    for name in ["nobody", "a-b", "ab"] {
        let got = site.get(&format!("Tables('{name}')")).send();
        got.refused(404, "ResourceNotFound", "The specified resource does not exist.");
    }
}

#[test]
fn f10_query_tables_with_filters() {
    let site = Site::new();
    for name in ["alpha", "Beta", "gamma", "delta"] {
        site.create(name).send().done(201);
    }
    let names = |filter| {
        let got = site.get_with("Tables", &[("$filter", filter)]).send().done(200);
        got.values("TableName").join(" ")
    };
    assert_eq!(names("TableName eq 'gamma'"), "gamma");
    assert_eq!(names("'gamma' ne TableName"), "alpha Beta delta");
    assert_eq!(names("TableName ge 'b' and TableName lt 'e'"), "delta");
    assert_eq!(names("not (TableName lt 'b') or TableName eq 'Beta'"), "Beta delta gamma");
    assert_eq!(names("TableName eq 'none'"), "");
    assert_eq!(names(""), "alpha Beta delta gamma");
    for filter in ["Name eq 'alpha'", "TableName eq 'a' or Size gt 5"] {
        site.get_with("Tables", &[("$filter", filter)]).send().fails(400, "InvalidInput");
    }
    site.get_with("Tables", &[("$filter", "TableName eq")]).send().refused(
        400,
        "InvalidInput",
        "Syntax error at position 12 in 'TableName eq'.",
    );
    // Each item of the list has the table's name and nothing else, whatever `$select` says.
    for select in ["TableName", "*", "Foo", "Foo,TableName", ""] {
        let got = site.get(&format!("Tables?$select={select}")).send().done(200);
        assert_eq!(got.values("TableName").len(), 4, "{select}");
        assert!(!got.has("Foo"), "{}", got.body);
    }
}

#[test]
fn f10_query_tables_page_by_page() {
    let site = Site::new();
    for i in 0..5 {
        site.create(&format!("Table{i}")).send().done(201);
    }
    let (mut found, mut next, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let mut parameters = vec![("$top", "2"), ("$filter", "TableName ne 'Table1'")];
        if !next.is_empty() {
            parameters.push(("NextTableName", &next));
        }
        let got = site.get_with("Tables", &parameters).send().done(200);
        found.extend(got.values("TableName").iter().map(|name| (*name).to_owned()));
        pages += 1;
        match got.header("x-ms-continuation-NextTableName") {
            // The token contains the name in lower case.
            Some(token) => next = token.to_owned(),
            None => break,
        }
        let token = crate::rest::protocol::paging::decode(&next).unwrap();
        assert!(token.starts_with("table3\u{1}"), "{token}");
    }
    assert_eq!((found.join(" ").as_str(), pages), ("Table0 Table2 Table3 Table4", 2));
    let got = site.get("Tables?$top=0").send().done(200);
    assert_eq!(
        (got.values("TableName").len(), got.header("x-ms-continuation-NextTableName")),
        (0, None)
    );
    for top in ["-1", "1001", "x", ""] {
        site.get(&format!("Tables?$top={top}")).send().fails(400, "InvalidInput");
    }
    site.get("Tables?NextTableName=Table2").send().fails(400, "InvalidInput");
}

#[test]
fn f11_create_table_returns_its_location() {
    let site = Site::new();
    let got = site.create("People").send().json(
        201,
        &format!(
            "{{\"odata.metadata\":\"{BASE}$metadata#Tables/@Element\",\"TableName\":\"People\"}}"
        ),
    );
    let location = format!("{BASE}Tables('People')");
    assert_eq!(got.header("Location"), Some(&*location));
    assert_eq!(got.header("Content-Type"), Some(MINIMAL));
    assert_eq!(got.header("Cache-Control"), Some("no-cache"));
    assert_eq!((got.header("Preference-Applied"), got.header("DataServiceId")), (None, None));

    let got = site.create("Orders").prefer("return-content").send().done(201);
    assert_eq!(got.header("Preference-Applied"), Some("return-content"));
    assert!(got.has("\"TableName\":\"Orders\""));

    let got = site.create("Parts").prefer("return-no-content").send().empty(204);
    assert_eq!(got.header("Preference-Applied"), Some("return-no-content"));
    let location = format!("{BASE}Tables('Parts')");
    assert_eq!(got.header("Location"), Some(&*location));
    assert_eq!(got.header("DataServiceId"), Some(&*location));
}

#[test]
fn f11_create_table_that_is_refused() {
    let site = Site::new();
    site.create("People").send().done(201);
    // An error response also has `Preference-Applied`.
    let got = site.create("people").prefer("return-no-content").send();
    let got = got.refused(409, "TableAlreadyExists", "The table specified already exists.");
    assert_eq!(got.header("Preference-Applied"), Some("return-no-content"));
    let text = "The values are not specified for all properties in the entity.";
    for body in ["{}", r#"{"TableName":null}"#, r#"{"Name":"people"}"#] {
        site.post("Tables", body).send().refused(400, "PropertiesNeedValue", text);
    }
    for body in
        ["", "[]", "{", r#"{"TableName":5}"#, r#"{"TableName":["a"]}"#, "{\"TableName\":\"abc\"}x"]
    {
        site.post("Tables", body).send().fails(400, "InvalidInput");
    }
    let twice = r#"{"TableName":"abc","TableName":"abd"}"#;
    site.post("Tables", twice).send().fails(400, "DuplicatePropertiesSpecified");
    let atom = site.ask("POST", "Tables").body("application/atom+xml", "<entry/>").send();
    atom.refused(415, "AtomFormatNotSupported", "Atom format is not supported.");
    for method in ["PUT", "PATCH", "MERGE", "DELETE"] {
        let text = "The requested method is not allowed on the specified resource.";
        let got = site.ask(method, "Tables").json(r#"{"TableName":"abc"}"#).send();
        got.refused(405, "MethodNotAllowed", text);
    }
    assert_eq!(site.get("Tables").send().values("TableName"), ["People"]);
}

#[test]
fn f12_delete_table_takes_effect_immediately() {
    let site = Site::people();
    site.insert("p", "r", "");
    let got = site.delete("Tables('people')").send().empty(204);
    assert_eq!(got.header("Cache-Control"), Some("no-cache"));
    let text = "The table specified does not exist.";
    site.get("people()").send().refused(404, "TableNotFound", text);
    site.get(&person("r")).send().refused(404, "TableNotFound", text);
    let insert = site.post("people", r#"{"PartitionKey":"p","RowKey":"r"}"#).send();
    insert.refused(404, "TableNotFound", text);
    for ask in [site.put(&person("r"), "{}"), site.patch(&person("r"), "{}")] {
        ask.send().refused(404, "TableNotFound", text);
    }
    site.delete(&person("r")).matching("*").send().refused(404, "TableNotFound", text);
    let text = "The specified resource does not exist.";
    site.delete("Tables('people')").send().refused(404, "ResourceNotFound", text);
    // The name can be used again, and the new table is empty.
    site.create("people").send().done(201);
    assert_eq!(site.get("people()").send().values("RowKey").len(), 0);
}

#[test]
fn the_code_of_a_table_that_is_being_deleted_has_its_status_and_text() {
    // The server never sends this code, because a deleted table disappears immediately. But clients
    // of the library may know the code, so its status and message are checked.
    let code = crate::error::Code::TableBeingDeleted;
    let fault = crate::rest::protocol::fault::Fault::from(code);
    let site = Site::new();
    let request = site.get("Tables").request;
    let reply = site.service.refuse(&request, fault);
    let body = String::from_utf8(reply.body).unwrap();
    assert_eq!(reply.status.as_u16(), 409);
    assert!(body.contains("\"code\":\"TableBeingDeleted\""), "{body}");
    assert!(body.contains("The specified table is being deleted."), "{body}");
}

#[test]
fn f10_query_tables_1000_at_a_time() {
    let site = Site::new();
    for i in 0..1_001 {
        site.account().db.create_table(&format!("T{i:04}")).unwrap();
    }
    let got = site.get("Tables").send().done(200);
    assert_eq!(got.values("TableName").len(), 1_000);
    let token = got.header("x-ms-continuation-NextTableName").unwrap();
    let got = site.get_with("Tables", &[("NextTableName", token)]).send().done(200);
    assert_eq!(got.values("TableName"), ["T1000"]);
    assert_eq!(got.header("x-ms-continuation-NextTableName"), None);
}
