//! Tests settings: access policies, service properties, statistics, and cross-origin requests.

use super::*;
use crate::error::Code;

const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>";
const RULE: &str = "<CorsRule><AllowedOrigins>http://a.example,http://b.example</AllowedOrigins>\
    <AllowedMethods>GET,PUT</AllowedMethods><MaxAgeInSeconds>500</MaxAgeInSeconds>\
    <ExposedHeaders>x-ms-*,ETag</ExposedHeaders><AllowedHeaders>x-ms-meta-*,Content-Type</AllowedHeaders></CorsRule>";
const OPEN_RULE: &str = "<CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods>\
    <MaxAgeInSeconds>0</MaxAgeInSeconds><ExposedHeaders>*</ExposedHeaders><AllowedHeaders>*</AllowedHeaders></CorsRule>";

fn policy(id: &str, inner: &str) -> String {
    format!(
        "<SignedIdentifier><Id>{id}</Id><AccessPolicy>{inner}</AccessPolicy></SignedIdentifier>"
    )
}

fn policies(inner: &str) -> String {
    format!("{DECLARATION}<SignedIdentifiers>{inner}</SignedIdentifiers>")
}

fn properties(inner: &str) -> String {
    format!("{DECLARATION}<StorageServiceProperties>{inner}</StorageServiceProperties>")
}

impl Site {
    fn acl(&self, body: &str) -> Got {
        self.ask("PUT", "people?comp=acl").xml(body).send()
    }

    fn set_properties(&self, inner: &str) -> Got {
        let ask = self.ask("PUT", "?restype=service&comp=properties");
        ask.xml(&properties(inner)).send()
    }

    #[track_caller]
    fn properties(&self) -> String {
        let got = self.get("?restype=service&comp=properties").send().done(200);
        assert_eq!(got.header("Content-Type"), Some("application/xml"));
        got.body
    }

    fn preflight(&self, origin: &str, method: &str, headers: &str) -> Got {
        let ask = self.ask("OPTIONS", "people").unsigned().header("Origin", origin);
        let ask = ask.header("Access-Control-Request-Method", method);
        match headers {
            "" => ask.send(),
            headers => ask.header("Access-Control-Request-Headers", headers).send(),
        }
    }
}

#[test]
fn f13_acl_is_kept_and_replaced() {
    let site = Site::people();
    let empty = format!("{DECLARATION}<SignedIdentifiers />");
    let got = site.get("people?comp=acl").send().json(200, &empty);
    assert_eq!(got.header("Content-Type"), Some("application/xml"));
    let full = policies(&policy(
        "p1",
        "<Start>2024-01-01T00:00:00.0000000Z</Start><Expiry>2025-01-01T00:00:00.0000000Z</Expiry>\
         <Permission>raud</Permission>",
    ));
    let got = site.acl(&full).empty(204);
    assert_eq!(got.header("Cache-Control"), None);
    site.get("people?comp=acl").send().json(200, &full);
    site.get("PEOPLE()?comp=acl").send().json(200, &full);
    // The connection omits the body of a response to HEAD.
    site.ask("HEAD", "people?comp=acl").send().done(200);
    // Setting policies replaces the whole list.
    let other = format!("{}{}", policy("a", ""), policy("b", "<Permission>r</Permission>"))
        + "<SignedIdentifier><Id>c</Id></SignedIdentifier>";
    site.acl(&policies(&other)).empty(204);
    // An empty `AccessPolicy` is stored as an absent one.
    let shown = policies(&other).replace("<AccessPolicy></AccessPolicy>", "");
    site.get("people?comp=acl").send().json(200, &shown);
    for none in ["", &empty, &policies("")] {
        site.acl(&policies(&other)).empty(204);
        site.acl(none).empty(204);
        site.get("people?comp=acl").send().json(200, &empty);
    }
}

#[test]
fn f13_acl_times_come_in_four_forms() {
    let site = Site::people();
    for (time, shown) in [
        ("2024-01-31", "2024-01-31T00:00:00.0000000Z"),
        ("2024-01-31T10:20Z", "2024-01-31T10:20:00.0000000Z"),
        ("2024-01-31T10:20:30+02:00", "2024-01-31T08:20:30.0000000Z"),
        ("2024-01-31T10:20:30.1234567Z", "2024-01-31T10:20:30.1234567Z"),
    ] {
        site.acl(&policies(&policy("p", &format!("<Expiry>{time}</Expiry>")))).empty(204);
        let got = site.get("people?comp=acl").send().done(200);
        assert!(got.has(&format!("<Expiry>{shown}</Expiry>")), "{}", got.body);
    }
}

#[test]
fn f13_acl_that_is_refused() {
    let site = Site::people();
    let many = |n: usize| (0..n).map(|i| policy(&i.to_string(), "")).collect::<String>();
    site.acl(&policies(&many(5))).empty(204);
    let kept = site.get("people?comp=acl").send().body;
    let long = "x".repeat(65);
    for (body, code) in [
        (policies(&many(6)), "InvalidXmlDocument"),
        ("<SignedIdentifiers>".to_owned(), "InvalidXmlDocument"),
        ("<Other />".to_owned(), "InvalidXmlDocument"),
        ("{}".to_owned(), "InvalidXmlDocument"),
        (policies(&policy(&long, "")), "InvalidXmlNodeValue"),
        (policies(&policy("", "")), "InvalidXmlNodeValue"),
        (policies(&format!("{}{}", policy("a", ""), policy("a", ""))), "InvalidXmlNodeValue"),
        (policies(&policy("a", "<Permission>x</Permission>")), "InvalidXmlNodeValue"),
        (policies(&policy("a", "<Expiry>soon</Expiry>")), "InvalidXmlNodeValue"),
        (policies("<SignedIdentifier />"), "MissingRequiredXmlNode"),
    ] {
        site.acl(&body).fails_xml(400, code);
        assert_eq!(site.get("people?comp=acl").send().body, kept);
    }
    site.acl(&policies(&policy(&"é".repeat(64), ""))).empty(204);
    let text = "The table specified does not exist.";
    let ask = site.ask("PUT", "nobody?comp=acl").xml(&policies(""));
    ask.send().refused_xml(404, "TableNotFound", text, "");
    site.get("nobody?comp=acl").send().refused_xml(404, "TableNotFound", text, "");
    // The policies are removed together with their table.
    site.delete("Tables('people')").send().empty(204);
    site.post("Tables", r#"{"TableName":"people"}"#).send().done(201);
    let empty = format!("{DECLARATION}<SignedIdentifiers />");
    site.get("people?comp=acl").send().json(200, &empty);
}

const LOGGING: &str = "<Logging><Version>1.0</Version><Delete>true</Delete><Read>false</Read><Write>true</Write>\
    <RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy></Logging>";
const HOURS: &str = "<HourMetrics><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs>\
    <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></HourMetrics>";
const MINUTES: &str = "<MinuteMetrics><Version>1.0</Version><Enabled>false</Enabled>\
    <RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></MinuteMetrics>";

#[test]
fn f14_service_properties_are_kept() {
    let site = Site::new();
    let off = |name: &str, inner: &str| {
        format!(
            "<{name}><Version>1.0</Version>{inner}<RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></{name}>"
        )
    };
    let defaults = [
        off("Logging", "<Delete>false</Delete><Read>false</Read><Write>false</Write>"),
        off("HourMetrics", "<Enabled>false</Enabled>"),
        off("MinuteMetrics", "<Enabled>false</Enabled>"),
        "<Cors></Cors>".to_owned(),
    ];
    assert_eq!(site.properties(), properties(&defaults.concat()));
    let all = format!("{LOGGING}{HOURS}{MINUTES}<Cors>{RULE}{OPEN_RULE}</Cors>");
    let got = site.set_properties(&all).empty(202);
    assert_eq!(got.header("Cache-Control"), None);
    assert_eq!(site.properties(), properties(&all));
    // Service properties that the request does not contain stay unchanged.
    site.set_properties(&off("HourMetrics", "<Enabled>false</Enabled>")).empty(202);
    let hours = off("HourMetrics", "<Enabled>false</Enabled>");
    let changed = format!("{LOGGING}{hours}{MINUTES}<Cors>{RULE}{OPEN_RULE}</Cors>");
    assert_eq!(site.properties(), properties(&changed));
    site.set_properties("").empty(202);
    assert_eq!(site.properties(), properties(&changed));
    // An empty `Cors` element removes all rules.
    site.set_properties("<Cors/>").empty(202);
    assert_eq!(site.properties(), properties(&format!("{LOGGING}{hours}{MINUTES}<Cors></Cors>")));
    // Requests of older versions get the XML elements of their version.
    let ask = site.get("?restype=service&comp=properties").header("x-ms-version", "2012-02-12");
    let got = ask.send().done(200);
    assert!(got.has("<Metrics>") && !got.has("HourMetrics") && !got.has("Cors"), "{}", got.body);
}

#[test]
fn f14_service_properties_that_are_refused() {
    let site = Site::new();
    let before = site.properties();
    let rules = |n: usize| format!("<Cors>{}</Cors>", RULE.repeat(n));
    for (inner, code) in [
        (rules(6), "InvalidXmlDocument"),
        ("<Logging>".to_owned(), "InvalidXmlDocument"),
        ("<Other/>".to_owned(), "UnsupportedXmlNode"),
        (LOGGING.replace("<Read>false</Read>", ""), "MissingRequiredXmlNode"),
        (LOGGING.replace("<Days>7</Days>", ""), "MissingRequiredXmlNode"),
        (LOGGING.replace(">7<", ">0<"), "InvalidXmlNodeValue"),
        (LOGGING.replace(">7<", ">366<"), "InvalidXmlNodeValue"),
        (LOGGING.replace(">1.0<", ">2.0<"), "InvalidXmlNodeValue"),
        (HOURS.replace("<IncludeAPIs>true</IncludeAPIs>", ""), "MissingRequiredXmlNode"),
        (format!("<Cors>{}</Cors>", RULE.replace("GET,PUT", "GET,LOOK")), "InvalidXmlNodeValue"),
        (format!("<Cors>{}</Cors>", RULE.replace(">500<", ">-1<")), "InvalidXmlNodeValue"),
        (
            format!("<Cors>{}</Cors>", RULE.replace("http://a.example", &"x".repeat(257))),
            "InvalidXmlNodeValue",
        ),
    ] {
        site.set_properties(&inner).fails_xml(400, code);
    }
    let ask = site.ask("PUT", "?restype=service&comp=properties");
    ask.xml("").send().fails_xml(400, "InvalidXmlDocument");
    assert_eq!(site.properties(), before);
    site.set_properties(&rules(5)).empty(202);
    site.get("?comp=properties").send().fails_xml(400, "MissingRequiredQueryParameter");
    site.get("?restype=container&comp=properties")
        .send()
        .fails_xml(400, "InvalidQueryParameterValue");
    site.get("?restype=service&comp=other").send().fails_xml(400, "InvalidQueryParameterValue");
    for method in ["POST", "DELETE"] {
        let ask = site.ask(method, "?restype=service&comp=properties").xml("");
        ask.send().fails_xml(400, "InvalidQueryParameterValue");
    }
}

#[test]
fn f15_service_stats_are_those_of_the_secondary() {
    let site = Site::people();
    let stats = "?restype=service&comp=stats";
    let got = site.ask_path("GET", &format!("/devstoreaccount1-secondary/{stats}")).send();
    let got = got.json(
        200,
        &format!(
            "{DECLARATION}<StorageServiceStats><GeoReplication><Status>live</Status>\
             <LastSyncTime>Sat, 03 Feb 2024 04:05:06 GMT</LastSyncTime></GeoReplication></StorageServiceStats>"
        ),
    );
    assert_eq!(got.header("Content-Type"), Some("application/xml"));
    assert_eq!(got.header("Cache-Control"), None);
    site.get(stats).send().refused_xml(
        400,
        "InvalidQueryParameterValue",
        "Value for one of the query parameters specified in the request URI is invalid.",
        "<QueryParameterName>comp</QueryParameterName><QueryParameterValue>stats</QueryParameterValue>\
         <Reason>Only the secondary location has statistics.</Reason>",
    );
}

#[test]
fn f16_cors_preflight() {
    let site = Site::new();
    let text = "CORS not enabled or no matching rule found for this request.";
    site.preflight("http://a.example", "GET", "").refused_xml(
        403,
        "CorsPreflightFailure",
        text,
        "",
    );
    site.set_properties(&format!("<Cors>{RULE}{OPEN_RULE}</Cors>")).empty(202);
    // A preflight request is answered without authentication, and even if the table does not exist.
    let got = site.preflight("http://b.example", "PUT", "x-ms-meta-a, CONTENT-TYPE").empty(200);
    assert_eq!(got.header("Access-Control-Allow-Origin"), Some("http://b.example"));
    assert_eq!(got.header("Access-Control-Allow-Methods"), Some("PUT"));
    assert_eq!(got.header("Access-Control-Allow-Headers"), Some("x-ms-meta-a, CONTENT-TYPE"));
    assert_eq!(got.header("Access-Control-Max-Age"), Some("500"));
    assert_eq!(got.header("Access-Control-Allow-Credentials"), Some("true"));
    // The first rule that matches applies. These requests match only the second rule.
    for (origin, headers) in
        [("http://c.example", ""), ("HTTP://A.example", ""), ("http://a.example", "x-other")]
    {
        let got = site.preflight(origin, "GET", headers).empty(200);
        assert_eq!(got.header("Access-Control-Allow-Origin"), Some("*"));
        assert_eq!(got.header("Access-Control-Max-Age"), Some("0"));
    }
    for (origin, method, headers) in [
        ("http://c.example", "PUT", ""),
        ("http://a.example", "PUT", "x-other"),
        ("http://a.example", "DELETE", ""),
        ("http://a.example", "put", ""),
    ] {
        site.preflight(origin, method, headers).refused_xml(403, "CorsPreflightFailure", text, "");
    }
    let ask = || site.ask("OPTIONS", "people").unsigned();
    ask().header("Origin", "http://a.example").send().fails_xml(400, "InvalidHeaderValue");
    ask()
        .header("Access-Control-Request-Method", "GET")
        .send()
        .fails_xml(400, "InvalidHeaderValue");
    let nobody =
        site.ask_path("OPTIONS", "/nobody/people").unsigned().header("Origin", "http://a.example");
    let nobody = nobody.header("Access-Control-Request-Method", "GET").send();
    nobody.fails_xml(403, "CorsPreflightFailure");
}

#[test]
fn f16_cors_of_actual_requests() {
    let site = Site::people();
    site.insert("p", "r", "");
    let allowed = |got: &Got| got.header("Access-Control-Allow-Origin").map(str::to_owned);
    let from = |origin: &str| site.get(&person("r")).header("Origin", origin).send().done(200);
    assert_eq!(allowed(&from("http://a.example")), None);
    site.set_properties(&format!("<Cors>{RULE}</Cors>")).empty(202);
    let got = from("http://a.example");
    assert_eq!(allowed(&got).as_deref(), Some("http://a.example"));
    assert_eq!(got.header("Access-Control-Allow-Credentials"), Some("true"));
    assert_eq!(got.header("Vary"), Some("Origin"));
    let exposed = got.header("Access-Control-Expose-Headers").unwrap();
    for name in ["ETag", "x-ms-request-id", "x-ms-version"] {
        assert!(exposed.split(',').any(|listed| listed.eq_ignore_ascii_case(name)), "{exposed}");
    }
    assert!(!exposed.to_ascii_lowercase().contains("content-type"), "{exposed}");
    // Responses to requests from other origins, or without an origin, permit nothing. They are not
    // the same for all origins, which a cache must know.
    let head = site.ask("HEAD", &person("r"));
    for got in [from("http://c.example"), site.get(&person("r")).send(), head.send()] {
        assert_eq!((allowed(&got), got.header("Vary")), (None, Some("Origin")));
    }
    let ask = site.ask("PATCH", &person("r")).json("{}").header("Origin", "http://a.example");
    assert_eq!(allowed(&ask.send().empty(204)), None);
    // Error responses have the CORS headers, too.
    for (ask, status) in [
        (site.get(&person("none")), 404),
        (site.get(&person("r")).unsigned(), 403),
        (site.get(&person("r")).header("x-ms-version", "1"), 400),
    ] {
        let got = ask.header("Origin", "http://a.example").send().done(status);
        assert_eq!(allowed(&got).as_deref(), Some("http://a.example"));
    }
    // Also errors of requests without an origin, and of requests that are not carried out.
    let request = site.get(&person("r")).request;
    let refused = site.service.refuse(&request, Code::ServerBusy.into());
    let busy = Got { headers: refused.headers, ..site.get(&person("none")).send().done(404) };
    for got in [
        site.get(&person("none")).send().done(404),
        site.ask("HEAD", &person("r")).unsigned().send().done(403),
        site.get(&person("r")).header("Host", "rowstone.example").send().done(403),
        busy,
    ] {
        assert_eq!((allowed(&got), got.header("Vary")), (None, Some("Origin")));
    }
}

#[test]
fn f16_cors_of_all_origins() {
    let site = Site::people();
    site.set_properties(&format!("<Cors>{OPEN_RULE}</Cors>")).empty(202);
    for ask in [site.get("people()"), site.get("people()").header("Origin", "http://a.example")] {
        let got = ask.send().done(200);
        assert_eq!(got.header("Access-Control-Allow-Origin"), Some("*"));
        assert_eq!(
            (got.header("Access-Control-Allow-Credentials"), got.header("Vary")),
            (None, None)
        );
        let exposed = got.header("Access-Control-Expose-Headers").unwrap().to_ascii_lowercase();
        for name in ["cache-control", "content-type", "x-ms-request-id", "x-ms-version", "server"] {
            assert!(exposed.split(',').any(|listed| listed == name), "{exposed}");
        }
        assert!(!exposed.contains('*'));
    }
    // The rule permits only reads, so the response to a write has no CORS headers.
    let got = site.put(&person("r"), "{}").send().empty(204);
    assert_eq!(got.header("Access-Control-Allow-Origin"), None);
}
