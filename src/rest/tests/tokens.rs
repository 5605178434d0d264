//! Tests tokens (service shared access signatures), which grant access to entities of one table:
//! permitted and refused operations.

use super::*;
use crate::rest::protocol::headers::Version;
use crate::rest::protocol::sas::{KeyBounds, ServiceSas, Terms};

pub(super) const FAILED: &str = "Server failed to authenticate the request. Make sure the value of Authorization header is formed \
                      correctly including the signature.";
pub(super) const NOT_AUTHORIZED: &str = "This request is not authorized to perform this operation.";
pub(super) const NO_PERMISSION: &str =
    "This request is not authorized to perform this operation using this permission.";

pub(super) fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

pub(super) fn terms(permissions: &str) -> Terms {
    Terms {
        version: Version::known("2019-02-02"),
        permissions: some(permissions),
        expiry: some("2030-01-01T00:00:00Z"),
        ..Terms::default()
    }
}

/// Returns a token for `people`.
fn service(permissions: &str) -> ServiceSas {
    ServiceSas { terms: terms(permissions), table: "people".into(), ..ServiceSas::default() }
}

/// Returns a token whose terms are all in the stored policy `id`.
fn of_policy(id: &str) -> ServiceSas {
    let terms = Terms { version: Version::known("2019-02-02"), ..Terms::default() };
    ServiceSas { terms, table: "people".into(), policy: some(id), ..ServiceSas::default() }
}

fn signed(sas: ServiceSas) -> String {
    sas.sign(DEVELOPMENT_ACCOUNT, &development_key()).token()
}

/// The operations on entities, each with the permissions that it requires.
const OPERATIONS: [(&str, &str); 9] = [
    ("query", "r"),
    ("get", "r"),
    ("insert", "a"),
    ("replace", "u"),
    ("merge", "u"),
    ("upsert", "au"),
    ("upsert merge", "au"),
    ("delete", "d"),
    ("tunnelled merge", "u"),
];

impl Site {
    /// Returns a request that is authorised by a token alone.
    pub(super) fn with_token(&self, method: &str, address: &str, token: &str) -> Ask<'_> {
        let separator = if address.contains('?') { '&' } else { '?' };
        let ask = self.ask(method, &format!("{address}{separator}{token}"));
        ask.unsigned().without("x-ms-date").without("x-ms-version")
    }

    /// Executes one of `OPERATIONS` on the entity with RowKey `rk`.
    fn operate(&self, operation: &str, rk: &str, token: &str) -> Got {
        let path = person(rk);
        let insert = format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"{rk}-new\"}}");
        let ask = |method, path: &str| self.with_token(method, path, token);
        match operation {
            "query" => ask("GET", "people()"),
            "get" => ask("GET", &path),
            "insert" => ask("POST", "people").json(&insert),
            "replace" => ask("PUT", &path).json("{}").matching("*"),
            "merge" => ask("PATCH", &path).json("{}").matching("*"),
            "upsert" => ask("PUT", &path).json("{}"),
            "upsert merge" => ask("MERGE", &path).json("{}"),
            "delete" => ask("DELETE", &path).matching("*"),
            _ => ask("POST", &path).json("{}").matching("*").header("X-HTTP-Method", "MERGE"),
        }
        .send()
    }

    fn set_policy(&self, inner: &str) {
        let body = format!("<SignedIdentifiers>{inner}</SignedIdentifiers>");
        self.ask("PUT", "people?comp=acl").xml(&body).send().empty(204);
    }
}

fn policy(id: &str, access: &str) -> String {
    format!(
        "<SignedIdentifier><Id>{id}</Id><AccessPolicy>{access}</AccessPolicy></SignedIdentifier>"
    )
}

#[test]
fn f38_service_sas_vectors() {
    let site = Site::people();
    site.insert("c", "r", "");
    let token = "tn=people&spk=a&srk=0&epk=m&erk=9&sv=2019-02-02&se=2030-01-01T00%3A00%3A00Z&sp=raud\
                 &spr=https%2Chttp&sig=gTcSe%2BNjSpqyZTR%2B34QG0JARJTFgtbpZepO1ZkP4pHM%3D";
    for token in
        [token.to_owned(), token.replace("%2B", "+"), token.replace("tn=people", "tn=People")]
    {
        let got = site.with_token("GET", "people()", &token).send().done(200);
        assert_eq!(got.values("RowKey"), ["r"]);
        assert_eq!(got.header("x-ms-version"), Some("2019-02-02"));
    }
    // The version of this token is older than the protocol's support for JSON. A request for JSON
    // must therefore name a newer version itself.
    let old = "tn=people&sv=2012-02-12&se=2030-01-01T00%3A00%3A00Z&sp=r&sig=PMVwKW69AFylIG5R3OJRe3LvVLxHqz61jLlab%2BYtXc8%3D";
    site.with_token("GET", "people()", old).send().fails(415, "JsonFormatNotSupported");
    for version in ["api-version=2019-02-02", "x=1"] {
        let ask = site.with_token("GET", "people()", &format!("{old}&{version}"));
        ask.header("x-ms-version", "2019-02-02").send().done(200);
    }
}

#[test]
fn f38_service_sas_permissions() {
    for given in ["r", "a", "u", "d", "ra", "au", "raud"] {
        for (operation, takes) in OPERATIONS {
            let site = Site::people();
            site.insert("p", "r", "");
            let got = site.operate(operation, "r", &signed(service(given)));
            if takes.chars().all(|letter| given.contains(letter)) {
                assert!(got.status < 300, "{given}: {operation}: {}", got.body);
            } else {
                got.refused(403, "AuthorizationPermissionMismatch", NO_PERMISSION);
                assert_eq!(site.rows(""), "r", "{given}: {operation}");
            }
        }
    }
}

#[test]
fn f38_service_sas_is_for_entities_of_its_table() {
    let site = Site::people();
    site.insert("p", "r", "");
    site.post("Tables", r#"{"TableName":"others"}"#).send().done(201);
    let token = signed(service("raud"));
    for (method, address) in [
        ("GET", "Tables"),
        ("GET", "Tables('people')"),
        ("POST", "Tables"),
        ("DELETE", "Tables('people')"),
        ("GET", "others()"),
        ("GET", "others(PartitionKey='p',RowKey='r')"),
        ("DELETE", "others(PartitionKey='p',RowKey='r')"),
    ] {
        let ask =
            site.with_token(method, address, &token).json(r#"{"TableName":"new"}"#).matching("*");
        ask.send().refused(403, "AuthorizationFailure", NOT_AUTHORIZED);
    }
    for (method, address) in [
        ("GET", "people?comp=acl"),
        ("PUT", "people?comp=acl"),
        ("GET", "?restype=service&comp=properties"),
        ("PUT", "?restype=service&comp=properties"),
    ] {
        let ask = site.with_token(method, address, &token).xml("");
        ask.send().refused_xml(403, "AuthorizationFailure", NOT_AUTHORIZED, "");
    }
    let ask = site.with_token("GET", "$rowstone/stats", &token);
    ask.send().refused(403, "AuthorizationFailure", NOT_AUTHORIZED);
    let got = site.with_token("GET", "people()", &token).send().done(200);
    assert_eq!(got.values("RowKey"), ["r"]);
}

#[test]
fn f38_service_sas_is_valid_for_a_time() {
    let site = Site::people();
    let mut sas = service("r");
    sas.terms.start = some("2024-02-03T04:00:00Z");
    sas.terms.expiry = some("2024-02-04");
    let token = signed(sas);
    for (time, status) in [
        ("2024-02-03T03:59:59Z", 403),
        ("2024-02-03T04:00:00Z", 200),
        ("2024-02-03T23:59:59.9999999Z", 200),
        ("2024-02-04T00:00:00Z", 403),
    ] {
        let got = site.at(time).with_token("GET", "people()", &token).send();
        if status == 403 {
            got.refused(403, "AuthenticationFailed", FAILED);
        } else {
            got.done(status);
        }
    }
}

#[test]
fn f38_service_sas_that_was_changed() {
    let site = Site::people();
    let mut sas = service("r");
    sas.terms.start = some("2024-02-03T04:00:00Z");
    sas.bounds.start_partition = some("a");
    let token = signed(sas);
    site.with_token("GET", "people()", &token).send().done(200);
    for (from, to) in [
        ("sp=r", "sp=raud"),
        ("se=2030", "se=2031"),
        ("st=2024-02-03", "st=2024-02-02"),
        ("tn=people", "tn=others"),
        ("spk=a", "spk=b"),
        ("spk=a", "x=y"),
        ("sv=2019-02-02", "sv=2019-07-07"),
        ("sig=", "sig=AAAA"),
        ("sp=r", "sp=r&si=p"),
        ("sp=r", "sp=r&erk=a&epk=b"),
        ("sv=2019-02-02", "sv=2010-01-01"),
        ("sv=2019-02-02&", ""),
        ("tn=people&", ""),
    ] {
        let changed = token.replace(from, to);
        assert_ne!(changed, token);
        let got = site.with_token("GET", "people()", &changed).send();
        assert_eq!(
            got.header("x-ms-error-code"),
            Some(if changed.contains("sv=") || !changed.contains("spk") {
                "AuthenticationFailed"
            } else {
                "FeatureVersionMismatch"
            }),
            "{to}"
        );
    }
    let other = service("r").sign(DEVELOPMENT_ACCOUNT, &key("b3RoZXI=")).token();
    site.with_token("GET", "people()", &other).send().refused(403, "AuthenticationFailed", FAILED);
    let unsigned = signed(service("r"));
    let (unsigned, _) = unsigned.split_once("&sig=").unwrap();
    site.with_token("GET", "people()", unsigned).send().refused(
        403,
        "AuthenticationFailed",
        FAILED,
    );
    // A signed `Authorization` header takes precedence, even over an invalid token.
    site.get(&format!("people()?{unsigned}&sig=x")).send().done(200);
}

#[test]
fn f38_service_sas_without_a_required_field() {
    let site = Site::people();
    let without = |change: fn(&mut ServiceSas)| {
        let mut sas = service("r");
        change(&mut sas);
        site.with_token("GET", "people()", &signed(sas)).send()
    };
    for change in [
        (|sas| sas.terms.permissions = None) as fn(&mut ServiceSas),
        |sas| sas.terms.expiry = None,
        |sas| sas.terms.expiry = some("soon"),
        |sas| sas.terms.permissions = some("ar"),
        |sas| sas.terms.permissions = some("rr"),
        |sas| sas.terms.permissions = some("rx"),
        |sas| sas.terms.protocols = some("ftp"),
        |sas| sas.terms.addresses = some("here"),
        |sas| sas.bounds.start_row = some("a"),
        |sas| sas.bounds.end_row = some("a"),
        |sas| sas.policy = some("unknown"),
    ] {
        without(change).refused(403, "AuthenticationFailed", FAILED);
    }
}

#[test]
fn f38_service_sas_is_valid_for_addresses_and_protocols() {
    let site = Site::people();
    let token = |addresses: Option<&str>, protocols: Option<&str>| {
        let mut sas = service("r");
        sas.terms.addresses = addresses.map(str::to_owned);
        sas.terms.protocols = protocols.map(str::to_owned);
        signed(sas)
    };
    let status = |token: &str, from: &str| {
        site.with_token("GET", "people()", token).from(from).send().status
    };
    let one = token(Some("10.0.0.5"), None);
    assert_eq!([status(&one, "10.0.0.5"), status(&one, "10.0.0.6")], [200, 403]);
    let range = token(Some("10.0.0.5-10.0.1.2"), None);
    for (from, expected) in [
        ("10.0.0.4", 403),
        ("10.0.0.5", 200),
        ("10.0.0.255", 200),
        ("10.0.1.2", 200),
        ("10.0.1.3", 403),
        ("::1", 403),
    ] {
        assert_eq!(status(&range, from), expected, "{from}");
    }
    let got = site.with_token("GET", "people()", &one).send();
    got.fails(403, "AuthorizationSourceIPMismatch");
    let https = token(None, Some("https"));
    let text = "This request is not authorized to perform this operation using this protocol.";
    let got = site.with_token("GET", "people()", &https).send();
    got.refused(403, "AuthorizationProtocolMismatch", text);
    site.with_token("GET", "people()", &https).encrypted().send().done(200);
    let both = token(None, Some("https,http"));
    site.with_token("GET", "people()", &both).send().done(200);
}

#[test]
fn f38_service_sas_policies() {
    let site = Site::people();
    let token = signed(of_policy("p1"));
    let ask = || site.with_token("GET", "people()", &token).send();
    ask().refused(403, "AuthenticationFailed", FAILED);
    let access = |letters: &str, year: u32| {
        policy("p1", &format!("<Expiry>{year}-01-01</Expiry><Permission>{letters}</Permission>"))
    };
    site.set_policy(&access("r", 2030));
    ask().done(200);
    // A change of the policy takes effect for existing tokens.
    site.set_policy(&access("aud", 2030));
    ask().refused(403, "AuthorizationPermissionMismatch", NO_PERMISSION);
    site.set_policy(&access("r", 2024));
    ask().refused(403, "AuthenticationFailed", FAILED);
    site.set_policy("");
    ask().refused(403, "AuthenticationFailed", FAILED);
    site.set_policy(&access("dr", 2030));
    ask().done(200);
    // The policy omits the expiry, so the token must contain it.
    site.set_policy(&policy("p1", "<Permission>r</Permission>"));
    ask().refused(403, "AuthenticationFailed", FAILED);
    let mut sas = of_policy("p1");
    sas.terms.expiry = some("2030-01-01");
    site.with_token("GET", "people()", &signed(sas)).send().done(200);
    // The policy has permissions, so the token must not contain any.
    site.set_policy(&access("r", 2030));
    let mut sas = of_policy("p1");
    sas.terms.permissions = some("r");
    let got = site.with_token("GET", "people()", &signed(sas)).send();
    got.fails(400, "InvalidQueryParameterValue");
}

#[test]
fn f38_service_sas_key_ranges() {
    let site = Site::people();
    let keys = [
        ("a", "1"),
        ("b", "1"),
        ("b", "2"),
        ("b", "3"),
        ("c", "1"),
        ("d", "1"),
        ("d", "2"),
        ("e", "1"),
    ];
    for (pk, rk) in keys {
        site.insert(pk, rk, "");
    }
    let bounds = |of: [Option<&str>; 4]| {
        let [start_partition, start_row, end_partition, end_row] = of.map(|b| b.map(str::to_owned));
        KeyBounds { start_partition, start_row, end_partition, end_row }
    };
    for (given, inside) in [
        ([Some("b"), None, None, None], "b1 b2 b3 c1 d1 d2 e1"),
        ([Some("b"), Some("2"), None, None], "b2 b3 c1 d1 d2 e1"),
        ([None, None, Some("d"), None], "a1 b1 b2 b3 c1 d1 d2"),
        ([None, None, Some("d"), Some("1")], "a1 b1 b2 b3 c1 d1"),
        ([Some("b"), Some("2"), Some("d"), Some("1")], "b2 b3 c1 d1"),
        ([Some("b"), None, Some("b"), None], "b1 b2 b3"),
        ([Some("b"), Some("2"), Some("b"), Some("2")], "b2"),
        ([Some("d"), None, Some("b"), None], ""),
    ] {
        let token = signed(ServiceSas { bounds: bounds(given), ..service("raud") });
        let list = |query: &str| {
            let got = site.with_token("GET", &format!("people(){query}"), &token).send().done(200);
            let keys = got.values("PartitionKey").into_iter().zip(got.values("RowKey"));
            keys.map(|(pk, rk)| format!("{pk}{rk}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(list(""), inside, "{given:?}");
        let some: Vec<_> = inside.split(' ').filter(|key| key.ends_with('1')).collect();
        assert_eq!(list("?$filter=RowKey%20eq%20'1'"), some.join(" "), "{given:?}");
        for (pk, rk) in keys {
            let is_inside = inside.contains(&format!("{pk}{rk}"));
            let path = format!("people(PartitionKey='{pk}',RowKey='{rk}')");
            let body = format!("{{\"PartitionKey\":\"{pk}\",\"RowKey\":\"{rk}\"}}");
            for (ask, status) in [
                (site.with_token("GET", &path, &token), 200),
                (site.with_token("PUT", &path, &token).json("{}"), 204),
                (
                    site.with_token("DELETE", &path, &token)
                        .matching("W/\"datetime'2020-01-01T00%3A00%3A00Z'\""),
                    412,
                ),
                (site.with_token("POST", "people", &token).json(&body), 409),
            ] {
                let got = ask.send();
                if is_inside {
                    assert_eq!(got.status, status, "{given:?}: {pk}{rk}: {}", got.body);
                } else {
                    got.refused(403, "AuthorizationFailure", NOT_AUTHORIZED);
                }
            }
        }
    }
}

#[test]
fn f38_service_sas_in_a_batch() {
    let site = Site::people();
    let operation = |rk: &str| {
        format!(
            "--c\r\nContent-Type: application/http\r\n\r\nPOST {BASE}people HTTP/1.1\r\n\
             Content-Type: application/json\r\nPrefer: return-no-content\r\n\r\n\
             {{\"PartitionKey\":\"p\",\"RowKey\":\"{rk}\"}}\r\n"
        )
    };
    let send = |sas: ServiceSas, rows: [&str; 2]| {
        let body = format!(
            "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n{}{}--c--\r\n--b--\r\n",
            operation(rows[0]),
            operation(rows[1])
        );
        let ask = site.with_token("POST", "$batch", &signed(sas));
        ask.body("multipart/mixed; boundary=b", &body).send().done(202)
    };
    let got = send(service("r"), ["1", "2"]);
    assert!(
        got.has("HTTP/1.1 403 Forbidden") && got.has("\"value\":\"0:This request is not"),
        "{}",
        got.body
    );
    // Each operation of a batch is checked separately. If one is not permitted, the batch fails.
    let bounds =
        KeyBounds { start_partition: some("p"), start_row: some("2"), ..KeyBounds::default() };
    let got = send(ServiceSas { bounds, ..service("a") }, ["2", "1"]);
    assert!(
        got.has("\"code\":\"AuthorizationFailure\"") && got.has("\"value\":\"1:"),
        "{}",
        got.body
    );
    let other = ServiceSas { table: "others".into(), ..service("a") };
    assert!(send(other, ["1", "2"]).has("\"code\":\"AuthorizationFailure\""));
    assert_eq!(site.rows(""), "");
    let got = send(service("a"), ["1", "2"]);
    assert_eq!(got.body.matches("204 No Content").count(), 2);
    assert_eq!(site.rows(""), "1 2");
}

#[test]
fn f38_service_sas_of_old_versions() {
    let site = Site::people();
    let of = |version: &str, expiry: &str, permissions: &str| {
        let mut sas = service(permissions);
        sas.terms.version = Version::known(version);
        sas.terms.expiry = some(expiry);
        let ask = site.with_token("GET", "people()", &signed(sas));
        ask.header("x-ms-version", "2019-02-02").send()
    };
    for version in ["2012-02-12", "2013-08-15", "2015-02-21", "2015-04-05", "2020-12-06"] {
        of(version, "2030-01-01", "r").done(200);
    }
    // A token without a version is valid for at most one hour.
    of("", "2024-02-03T05:00:00Z", "r").done(200);
    of("", "2024-02-03T05:06:00Z", "r").refused(403, "AuthenticationFailed", FAILED);
    // For tokens of old versions, a forbidden operation is reported as a missing resource.
    of("2014-02-14", "2030-01-01", "a").fails(404, "ResourceNotFound");
    of("2015-04-05", "2030-01-01", "a").fails(403, "AuthorizationPermissionMismatch");
    let mut sas = service("r");
    sas.terms.version = Version::known("2014-02-14");
    sas.terms.protocols = some("https,http");
    let got = site.with_token("GET", "people()", &signed(sas)).send();
    got.fails(409, "FeatureVersionMismatch");
}
