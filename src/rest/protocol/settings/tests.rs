//! Tests settings: reading and writing the XML documents of the service, their limits, and the
//! errors of malformed documents.

use super::*;

fn written(put: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    put(&mut out);
    String::from_utf8(out).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, Fault>) -> String {
    let fault = result.unwrap_err();
    assert_eq!(fault.status, 400);
    fault.code.into_owned()
}

const POLICY: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers><SignedIdentifier><Id>p1</Id>\
    <AccessPolicy><Start>2024-01-01T00:00:00.0000000Z</Start><Expiry>2025-01-01T10:20:30.1234567Z</Expiry>\
    <Permission>raud</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>";

fn policies(inner: &str) -> Result<Vec<Policy>, Fault> {
    read_policies(&format!("<SignedIdentifiers>{inner}</SignedIdentifiers>"))
}

fn policy(inner: &str) -> Result<Vec<Policy>, Fault> {
    policies(&format!("<SignedIdentifier>{inner}</SignedIdentifier>"))
}

#[test]
fn the_recorded_policies() {
    let read = read_policies(POLICY).unwrap();
    assert_eq!(read.len(), 1);
    let access = read[0].access.as_ref().unwrap();
    assert_eq!((&*read[0].id, access.permissions.as_deref()), ("p1", Some("raud")));
    assert_eq!(access.start.unwrap().to_string(), "2024-01-01T00:00:00Z");
    assert_eq!(written(|out| put_policies(out, &read)), POLICY);
    let none = "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers />";
    assert_eq!(written(|out| put_policies(out, &[])), none);
    for text in [none, "", "<SignedIdentifiers></SignedIdentifiers>", "\u{feff}  "] {
        assert_eq!(read_policies(text), Ok(vec![]), "{text}");
    }
}

#[test]
fn parts_of_policies_may_be_left_out() {
    let bare = Policy { id: "<p&>".into(), access: None };
    for text in [
        "<Id>&lt;p&amp;&gt;</Id>",
        "<Id>&lt;p&amp;&gt;</Id><AccessPolicy/>",
        "<AccessPolicy><Start/><Expiry></Expiry><Permission /></AccessPolicy><Id> &lt;p&amp;&gt; </Id>",
    ] {
        assert_eq!(policy(text).as_deref(), Ok(&[bare.clone()][..]), "{text}");
    }
    let text = written(|out| put_policies(out, std::slice::from_ref(&bare)));
    assert!(!text.contains("AccessPolicy"), "an absent element stays absent: {text}");
    assert_eq!(read_policies(&text), Ok(vec![bare]));
    for time in [
        "2024-01-31",
        "2024-01-31T10:20Z",
        "2024-01-31T10:20:30+02:00",
        "2024-01-31T10:20:30.1234567Z",
    ] {
        let read = policy(&format!("<Id>a</Id><AccessPolicy><Start>{time}</Start></AccessPolicy>"))
            .unwrap();
        let start = read[0].access.as_ref().unwrap().start;
        assert_eq!(start, time::read_iso(time));
        assert!(start.is_some());
    }
    for letters in ["r", "dua", "raud"] {
        let read = policy(&format!(
            "<Id>a</Id><AccessPolicy><Permission>{letters}</Permission></AccessPolicy>"
        ));
        let access = read.unwrap().remove(0).access.unwrap();
        assert_eq!(access.permissions.as_deref(), Some(letters));
    }
}

#[test]
fn limits_of_policies() {
    let many = |n: usize| {
        let all: String =
            (0..n).map(|i| format!("<SignedIdentifier><Id>{i}</Id></SignedIdentifier>")).collect();
        policies(&all)
    };
    assert_eq!(many(5).unwrap().len(), 5);
    assert_eq!(code(many(6)), "InvalidXmlDocument");
    let long = |n: usize| policy(&format!("<Id>{}</Id>", "é".repeat(n)));
    assert!(long(64).is_ok());
    assert_eq!(code(long(65)), "InvalidXmlNodeValue");
    let twice = "<SignedIdentifier><Id>a</Id></SignedIdentifier>".repeat(2);
    assert_eq!(code(policies(&twice)), "InvalidXmlNodeValue");
}

#[test]
fn policies_that_are_refused() {
    for text in ["x", "<SignedIdentifiers>", "<Other/>", "<SignedIdentifiers/>x"] {
        assert_eq!(code(read_policies(text)), "InvalidXmlDocument", "{text}");
    }
    assert_eq!(code(policies("<Other/>")), "UnsupportedXmlNode");
    assert_eq!(code(policy("<Id>a</Id><Other/>")), "UnsupportedXmlNode");
    assert_eq!(code(policy("<Id>a</Id><Id>b</Id>")), "InvalidXmlDocument");
    assert_eq!(code(policy("")), "MissingRequiredXmlNode");
    assert_eq!(code(policy("<Id/>")), "InvalidXmlNodeValue");
    for inner in [
        "<Start>soon</Start>",
        "<Expiry>2024-13-01</Expiry>",
        "<Permission>x</Permission>",
        "<Permission>rr</Permission>",
        "<Permission>RAUD</Permission>",
        "<Permission>raudx</Permission>",
    ] {
        let read = policy(&format!("<Id>a</Id><AccessPolicy>{inner}</AccessPolicy>"));
        assert_eq!(code(read), "InvalidXmlNodeValue", "{inner}");
    }
    for end in 40..POLICY.len() {
        assert!(read_policies(&POLICY[..end]).is_err());
    }
}

const DEFAULTS: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><StorageServiceProperties><Logging><Version>1.0</Version>\
    <Delete>false</Delete><Read>false</Read><Write>false</Write><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy>\
    </Logging><HourMetrics><Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled>\
    </RetentionPolicy></HourMetrics><MinuteMetrics><Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy>\
    <Enabled>false</Enabled></RetentionPolicy></MinuteMetrics><Cors></Cors></StorageServiceProperties>";

fn full() -> Properties {
    Properties {
        logging: Logging { delete: true, read: false, write: true, days: Some(5) },
        hour_metrics: Metrics { include_apis: Some(true), days: Some(365) },
        minute_metrics: Metrics { include_apis: Some(false), days: None },
        cors: vec![
            CorsRule {
                origins: vec!["http://a".into(), "https://b:8080".into()],
                methods: vec!["GET".into(), "MERGE".into()],
                max_age_seconds: 60,
                exposed: vec!["x-ms-meta-*".into()],
                allowed: vec!["*".into(), "x-a".into()],
            },
            CorsRule {
                origins: vec!["*".into()],
                methods: vec!["PATCH".into()],
                ..CorsRule::default()
            },
        ],
    }
}

#[test]
fn properties_are_written_and_read_back() {
    assert_eq!(written(|out| Properties::default().put(out, false)), DEFAULTS);
    for properties in [Properties::default(), full()] {
        let text = written(|out| properties.put(out, false));
        let change = Change::read(&text).unwrap();
        assert_eq!(Properties::default().with(change.clone()), properties);
        assert_eq!(full().with(change), properties);
        for end in 40..text.len() {
            assert!(Change::read(&text[..end]).is_err());
        }
    }
}

#[test]
fn old_clients_get_hourly_metrics_only() {
    let text = written(|out| full().put(out, true));
    assert!(
        text.contains("</Logging><Metrics><Version>1.0</Version>")
            && text.ends_with("</Metrics></StorageServiceProperties>")
    );
    let properties = Properties::default().with(Change::read(&text).unwrap());
    assert_eq!(properties.hour_metrics, full().hour_metrics);
    assert_eq!(properties.minute_metrics, Metrics::default());
}

fn change(inner: &str) -> Result<Change, Fault> {
    Change::read(&format!("<StorageServiceProperties>{inner}</StorageServiceProperties>"))
}

#[test]
fn omitted_properties_are_unchanged() {
    assert_eq!(full().with(change("").unwrap()), full());
    let without_rules = full().with(change("<Cors/>").unwrap());
    assert_eq!(without_rules, Properties { cors: vec![], ..full() });
    let metrics = "<MinuteMetrics><Version>1.0</Version><Enabled>False</Enabled><IncludeAPIs>true</IncludeAPIs>\
                   <RetentionPolicy><Enabled>false</Enabled><Days>0</Days></RetentionPolicy></MinuteMetrics>";
    let changed = full().with(change(metrics).unwrap());
    assert_eq!(changed, Properties { minute_metrics: Metrics::default(), ..full() });
}

#[test]
fn properties_that_are_refused() {
    for text in ["", "x", "<Other/>", "<StorageServiceProperties>"] {
        assert_eq!(code(Change::read(text)), "InvalidXmlDocument", "{text}");
    }
    let text = written(|out| full().put(out, false));
    for (from, to, expected) in [
        ("<Logging>", "<Other/><Logging>", "UnsupportedXmlNode"),
        ("<Logging>", "<DefaultServiceVersion/><Logging>", "UnsupportedXmlNode"),
        ("<Cors>", "<Cors/><Cors>", "InvalidXmlDocument"),
        (
            "<Cors>",
            "<Metrics><Version>1.0</Version><Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></Metrics><Cors>",
            "InvalidXmlDocument",
        ),
        ("<Version>1.0</Version>", "", "MissingRequiredXmlNode"),
        ("<Version>1.0</Version>", "<Version>2.0</Version>", "InvalidXmlNodeValue"),
        ("<Read>false</Read>", "", "MissingRequiredXmlNode"),
        ("<Read>false</Read>", "<Read>maybe</Read>", "InvalidXmlNodeValue"),
        ("<IncludeAPIs>true</IncludeAPIs>", "", "MissingRequiredXmlNode"),
        ("<Days>5</Days>", "", "MissingRequiredXmlNode"),
        ("<Days>5</Days>", "<Days>0</Days>", "InvalidXmlNodeValue"),
        ("<Days>5</Days>", "<Days>366</Days>", "InvalidXmlNodeValue"),
        ("<Days>5</Days>", "<Days>99999999999</Days>", "InvalidXmlNodeValue"),
        ("<CorsRule>", "<Rule/><CorsRule>", "UnsupportedXmlNode"),
        ("<CorsRule>", "<CorsRule><Other/>", "UnsupportedXmlNode"),
        ("<MaxAgeInSeconds>60</MaxAgeInSeconds>", "", "MissingRequiredXmlNode"),
        (
            "<MaxAgeInSeconds>60</MaxAgeInSeconds>",
            "<MaxAgeInSeconds>-1</MaxAgeInSeconds>",
            "InvalidXmlNodeValue",
        ),
        ("GET,MERGE", "GET,FROB", "InvalidXmlNodeValue"),
        ("GET,MERGE", "", "InvalidXmlNodeValue"),
        ("http://a,https://b:8080", " , ", "InvalidXmlNodeValue"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert_eq!(code(Change::read(&changed)), expected, "{from} {to}");
    }
}

#[test]
fn limits_of_rules() {
    let rules = |n: usize| {
        let rule = "<CorsRule><AllowedOrigins>*</AllowedOrigins><AllowedMethods>GET</AllowedMethods>\
                    <MaxAgeInSeconds>0</MaxAgeInSeconds></CorsRule>";
        change(&format!("<Cors>{}</Cors>", rule.repeat(n)))
    };
    assert!(rules(5).is_ok());
    assert_eq!(code(rules(6)), "InvalidXmlDocument");
    let rule = |origins: &str, headers: &str| {
        change(&format!(
            "<Cors><CorsRule><AllowedOrigins>{origins}</AllowedOrigins><AllowedMethods>GET, PUT</AllowedMethods>\
             <MaxAgeInSeconds>0</MaxAgeInSeconds><ExposedHeaders>{headers}</ExposedHeaders><AllowedHeaders/></CorsRule></Cors>"
        ))
    };
    let list = |n: usize| vec!["a"; n].join(",");
    assert!(rule(&list(64), &list(64)).is_ok());
    assert_eq!(code(rule(&list(65), "")), "InvalidXmlNodeValue");
    assert_eq!(code(rule("*", &list(65))), "InvalidXmlNodeValue");
    assert!(rule("*", &format!("{},b*,c*", list(64))).is_ok());
    assert_eq!(code(rule("*", "a*,b*,c*")), "InvalidXmlNodeValue");
    assert!(rule(&"o".repeat(256), &"h".repeat(256)).is_ok());
    assert_eq!(code(rule(&"o".repeat(257), "")), "InvalidXmlNodeValue");
    assert_eq!(code(rule("*", &"h".repeat(257))), "InvalidXmlNodeValue");
    assert_eq!(code(rule("*", &",h".repeat(1_000_000))), "InvalidXmlNodeValue");
}

#[test]
fn statistics() {
    let time: DateTime = "2024-02-03T04:05:06Z".parse().unwrap();
    assert_eq!(
        written(|out| put_stats(out, time)),
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><StorageServiceStats><GeoReplication><Status>live</Status>\
         <LastSyncTime>Sat, 03 Feb 2024 04:05:06 GMT</LastSyncTime></GeoReplication></StorageServiceStats>"
    );
}
