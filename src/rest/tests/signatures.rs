//! Tests requests signed with an account key, and the public development account.

use super::*;

const FAILED: &str = "Server failed to authenticate the request. Make sure the value of Authorization header is formed \
                      correctly including the signature.";
const DATE: &str = "Mon, 02 Jan 2023 03:04:05 GMT";

impl Ask<'_> {
    /// Sets the header `Authorization` to `authorization` and the date to `DATE`.
    fn authorized(self, authorization: &str) -> Self {
        let ask = self.unsigned().header("x-ms-date", DATE);
        ask.header("Authorization", authorization)
    }
}

/// Returns a test service whose clock shows the time in the published signatures.
fn dated() -> Site {
    let site = Site::people();
    site.at("2023-01-02T03:04:05Z");
    site
}

#[test]
fn f37_shared_key_vectors() {
    let site = dated();
    site.put("people(PartitionKey='OHara%20x',RowKey='1')", "{}").send().empty(204);
    let name = DEVELOPMENT_ACCOUNT;
    for (ask, scheme, signature) in [
        (site.get("Tables"), "SharedKey", "oy/oMyUTLLXTXucivLhylPYZk9viyZce0GqZhHTZFog="),
        (site.get("Tables"), "SharedKeyLite", "MwED/VWpkCBrzCToBe7eWkVhi3BY7VPzThzlcpeWCL0="),
        (
            site.post("people", r#"{"PartitionKey":"p","RowKey":"r"}"#),
            "SharedKey",
            "mNfYWyLSWLKlFh4KxsOvUxurF01K5csFr6jgUT9FVXc=",
        ),
        (site.get("people?comp=acl"), "SharedKey", "yOhIX/n7zASvyTJJP3kR4aGHXPa0jAnP1+V6CLu2Y/M="),
        (
            site.get("people(PartitionKey='OHara%20x',RowKey='1')"),
            "SharedKey",
            "o2QRmq7QQqqGiXdJotTKwrMsf47zYkirUX4NXofZcBM=",
        ),
    ] {
        let got = ask.authorized(&format!("{scheme} {name}:{signature}")).send();
        assert!(got.status == 200 || got.status == 201, "{signature}: {}", got.body);
    }
    // Other query parameters are not signed, so the same signature stays valid.
    let signature = "oy/oMyUTLLXTXucivLhylPYZk9viyZce0GqZhHTZFog=";
    let ask = site.get("Tables?$top=5&timeout=3&$filter=TableName%20eq%20'a'");
    ask.authorized(&format!("SharedKey {name}:{signature}")).send().done(200);
    for other in ["people()", "Tables()", "tables"] {
        let got = site.get(other).authorized(&format!("SharedKey {name}:{signature}")).send();
        got.refused(403, "AuthenticationFailed", FAILED);
    }
}

#[test]
fn f37_shared_key_and_dates() {
    let site = dated();
    let at = |name: &str, date: &str| {
        site.get("Tables").without("x-ms-date").header(name, date).send().status
    };
    for header in ["x-ms-date", "Date"] {
        for (date, status) in [
            (DATE, 200),
            ("Mon, 02 Jan 2023 02:49:05 GMT", 200),
            ("Mon, 02 Jan 2023 03:19:05 GMT", 200),
            ("Mon, 02 Jan 2023 02:49:04 GMT", 403),
            ("Mon, 02 Jan 2023 03:19:06 GMT", 403),
            ("Sun, 02 Jan 2022 03:04:05 GMT", 403),
            ("2023-01-02T03:04:05Z", 403),
            ("now", 403),
        ] {
            assert_eq!(at(header, date), status, "{header}: {date}");
        }
    }
    site.get("Tables").without("x-ms-date").send().refused(403, "AuthenticationFailed", FAILED);
    // `x-ms-date` overrides `Date`.
    let old = "Sun, 02 Jan 2022 03:04:05 GMT";
    site.get("Tables").header("Date", old).send().done(200);
    let ask = site.get("Tables").header("Date", DATE).header("x-ms-date", old);
    ask.send().fails(403, "AuthenticationFailed");
}

#[test]
fn f37_shared_key_with_either_key_of_the_account() {
    let site = Site::new();
    let ask = |text: &str| site.ask_path("GET", "/acme/Tables").signed_by(ACME, key(text));
    for text in ACME_KEYS {
        ask(text).send().done(200);
        ask(text).lite().send().done(200);
    }
    ask("b3RoZXI=").send().refused(403, "AuthenticationFailed", FAILED);
    ask("b3RoZXI=").lite().send().refused(403, "AuthenticationFailed", FAILED);
    // A key is valid only for its own account.
    let ask = site.get("Tables").signed_by(ACME, key(ACME_KEYS[0]));
    ask.send().refused(403, "AuthenticationFailed", FAILED);
    let ask = site.ask_path("GET", "/acme/Tables").signed_by(ACME, development_key());
    ask.send().refused(403, "AuthenticationFailed", FAILED);
    // The keys of an account can be replaced while the server runs.
    let replaced = AccountConfig { name: ACME.to_owned(), keys: vec![key("bmV3")], database: None };
    let development = AccountConfig::development();
    let rotated = site.service.accounts().rotate(vec![replaced, development]);
    assert_eq!(rotated, Rotated::default());
    let ask = |text: &str| site.ask_path("GET", "/acme/Tables").signed_by(ACME, key(text));
    ask("bmV3").send().done(200);
    ask(ACME_KEYS[0]).send().fails(403, "AuthenticationFailed");
}

#[test]
fn f37_an_account_that_is_gone_has_no_keys() {
    let site = Site::people();
    let config = |name: &str, database: Option<&str>| AccountConfig {
        name: name.to_owned(),
        keys: vec![key("bmV3")],
        database: database.map(Into::into),
    };
    site.get("Tables").send().done(200);
    let accounts = site.service.accounts();
    let rotated = accounts.rotate(vec![config(ACME, Some("elsewhere")), config("other", None)]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let expected = Rotated {
        came: names(&["other"]),
        gone: names(&[DEVELOPMENT_ACCOUNT]),
        moved: names(&[ACME]),
    };
    assert_eq!(rotated, expected);
    site.get("Tables").send().refused(403, "AuthenticationFailed", FAILED);
    let ask = || site.ask_path("GET", "/acme/Tables").signed_by(ACME, key("bmV3"));
    ask().send().done(200);
    // An account that is removed from the configuration loses its keys until it is added again.
    accounts.rotate(vec![AccountConfig::development()]);
    site.get("Tables").send().done(200);
    ask().send().refused(403, "AuthenticationFailed", FAILED);
}

#[test]
fn f37_shared_key_signs_type_and_checksum() {
    let site = dated();
    let body = r#"{"PartitionKey":"p","RowKey":"r"}"#;
    // A change of a signed header in transit is detected.
    let signed = |media: &str| site.post("people", body).header("Content-Type", media);
    signed("application/json;odata=nometadata").send().done(201);
    let name = DEVELOPMENT_ACCOUNT;
    let signature = "mNfYWyLSWLKlFh4KxsOvUxurF01K5csFr6jgUT9FVXc=";
    let changed = signed("application/json; charset=utf-8")
        .authorized(&format!("SharedKey {name}:{signature}"));
    changed.send().refused(403, "AuthenticationFailed", FAILED);
    // Shared Key Lite does not sign the method; Shared Key does.
    let lite = "MwED/VWpkCBrzCToBe7eWkVhi3BY7VPzThzlcpeWCL0=";
    let ask = site.ask("HEAD", "Tables").authorized(&format!("SharedKeyLite {name}:{lite}"));
    ask.send().done(200);
    let full = "oy/oMyUTLLXTXucivLhylPYZk9viyZce0GqZhHTZFog=";
    let ask = site.ask("HEAD", "Tables").authorized(&format!("SharedKey {name}:{full}"));
    ask.send().done(403);
    // A request with `X-HTTP-Method` is signed with the method POST.
    let ask = site.post(&person("r"), "{}").header("X-HTTP-Method", "MERGE");
    ask.send().empty(204);
}

#[test]
fn f37_shared_key_for_the_secondary_address() {
    let site = Site::people();
    let ask = || site.ask_path("GET", "/devstoreaccount1-secondary/people()");
    ask().send().done(200);
    // Requests to the secondary location may also be signed with the path of the primary.
    let query = Parameters::default();
    let mut primary = site.get("people()").request;
    let parts = SignedParts::of("GET", "/devstoreaccount1/people()", &query, &primary);
    let signed = parts.sign(Scheme::SharedKey, DEVELOPMENT_ACCOUNT, &development_key());
    primary.path = "/devstoreaccount1-secondary/people()".to_owned();
    ask().unsigned().header("Authorization", &signed).send().done(200);
}

#[test]
fn f37_shared_key_malformed_headers() {
    let site = Site::people();
    let ask = |text: &str| site.get("Tables").unsigned().header("Authorization", text);
    for text in [
        "",
        "x",
        "SharedKey",
        "SharedKey devstoreaccount1",
        "SharedKey :x",
        "SharedKey a:",
        "Basic YTpi",
    ] {
        ask(text).send().fails(400, "InvalidAuthenticationInfo");
    }
    ask("Bearer abc").send().fails(401, "InvalidAuthenticationInfo");
    for text in [
        "SharedKey devstoreaccount1:!!!",
        "SharedKey devstoreaccount1:YQ==",
        "SharedKey other:YQ==",
    ] {
        ask(text).send().refused(403, "AuthenticationFailed", FAILED);
    }
    site.get("Tables").unsigned().send().refused(403, "AuthenticationFailed", FAILED);
    // The XML body contains the string that should have been signed.
    let ask = site
        .get("people?comp=acl")
        .unsigned()
        .header("Authorization", "SharedKey devstoreaccount1:YQ==");
    let got = ask.send().fails_xml(403, "AuthenticationFailed");
    let text = "<AuthenticationErrorDetail>The MAC signature found in the HTTP request &apos;YQ==&apos; is not the same as any \
                computed signature. Server used following string to sign: &apos;GET\n\n\nSat, 03 Feb 2024 04:05:06 GMT\n\
                /devstoreaccount1/devstoreaccount1/people?comp=acl&apos;.</AuthenticationErrorDetail>";
    assert!(got.has(text), "{}", got.body);
}

#[test]
fn f40_development_account() {
    assert_eq!(DEVELOPMENT_ACCOUNT, "devstoreaccount1");
    let halves = [
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6",
        "IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    ];
    assert_eq!(DEVELOPMENT_KEY, halves.concat());
    let site = Site::new();
    for ask in [
        site.ask_path("GET", "/devstoreaccount1/Tables"),
        site.ask_path("GET", "/devstoreaccount1-secondary/Tables"),
        site.ask_path("GET", "/Tables").header("Host", "devstoreaccount1.table.localhost:10002"),
    ] {
        ask.send().done(200);
    }
    // If the development account has its public key, the server may listen on loopback addresses
    // only.
    let accounts = [AccountConfig::development()];
    for (listen, is_fine) in [
        ("127.0.0.1:10002", true),
        ("[::1]:10002", true),
        ("0.0.0.0:10002", false),
        ("192.168.1.5:80", false),
    ] {
        let checked = crate::rest::check_exposure(&listen.parse().unwrap(), &accounts);
        assert_eq!(checked.is_ok(), is_fine, "{listen}");
        assert!(checked.err().is_none_or(|text| !text.contains(DEVELOPMENT_KEY)));
    }
    let own = AccountConfig { name: ACME.into(), keys: vec![key(ACME_KEYS[0])], database: None };
    assert!(crate::rest::check_exposure(&"0.0.0.0:80".parse().unwrap(), &[own]).is_ok());
    // The development account may have a private key, but its public key must not be used by
    // another account.
    let other = AccountConfig { name: ACME.into(), keys: vec![development_key()], database: None };
    assert!(crate::rest::check_exposure(&"0.0.0.0:80".parse().unwrap(), &[other]).is_err());
}
