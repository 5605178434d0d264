//! Tests account tokens (shared access signatures of an account): permitted and refused operations.

use super::tokens::{FAILED, NO_PERMISSION, NOT_AUTHORIZED, some, terms};
use super::*;
use crate::rest::protocol::headers::Version;
use crate::rest::protocol::sas::AccountSas;

const NO_TYPE: &str =
    "This request is not authorized to perform this operation using this resource type.";

pub(super) fn account(types: &str, permissions: &str) -> AccountSas {
    let (services, resource_types) = ("t".to_owned(), types.to_owned());
    AccountSas { terms: terms(permissions), services, resource_types, encryption_scope: None }
}

pub(super) fn signed_account(sas: AccountSas) -> String {
    sas.sign(DEVELOPMENT_ACCOUNT, &development_key()).token()
}

#[test]
fn f39_account_sas_vectors() {
    let site = Site::people();
    for (version, signature) in [
        ("2019-02-02", "dKEa4zPUq%2FdWdOLrCYusn1Jnz45OJCCdBPi%2BhMWeijk%3D"),
        ("2020-12-06", "aQbb1uM9CNZPJhjuzMWpvrja5t6VW2FlvCUFVvjctAk%3D"),
    ] {
        let token = format!(
            "sv={version}&ss=t&srt=sco&sp=rwdlacu&se=2030-01-01T00%3A00%3A00Z&spr=https%2Chttp&sig={signature}"
        );
        let got = site.with_token("GET", "Tables", &token).send().done(200);
        assert_eq!(got.header("x-ms-version"), Some(version));
        assert_eq!(got.values("TableName"), ["people"]);
        let changed = token.replace("srt=sco", "srt=co");
        site.with_token("GET", "Tables", &changed).send().refused(
            403,
            "AuthenticationFailed",
            FAILED,
        );
    }
}

#[test]
fn f39_account_sas_operations() {
    // Each row: method (`*`: sent with `If-Match: *`), address, body, letters of the resource types
    // (each of them permits the operation), and lists of permission letters (a token needs all
    // letters of one list).
    let matrix: [(&str, &str, &str, &str, &[&str]); 14] = [
        ("GET", "?restype=service&comp=properties", "", "s", &["r"]),
        ("PUT", "?restype=service&comp=properties", "<StorageServiceProperties/>", "s", &["w"]),
        ("GET", "-secondary/?restype=service&comp=stats", "", "s", &["r"]),
        ("GET", "Tables", "", "c", &["l"]),
        ("GET", "Tables('people')", "", "c", &["l"]),
        ("POST", "Tables", r#"{"TableName":"new"}"#, "c", &["c", "w"]),
        ("DELETE", "Tables('people')", "", "c", &["d"]),
        ("GET", "people()", "", "oc", &["r"]),
        ("GET", "people(PartitionKey='p',RowKey='r')", "", "o", &["r"]),
        ("POST", "people", r#"{"PartitionKey":"p","RowKey":"2"}"#, "o", &["a"]),
        ("PATCH*", "people(PartitionKey='p',RowKey='r')", "{}", "o", &["u"]),
        ("PUT", "people(PartitionKey='p',RowKey='r')", "{}", "o", &["au"]),
        ("MERGE", "people(PartitionKey='p',RowKey='r')", "{}", "o", &["au"]),
        ("DELETE*", "people(PartitionKey='p',RowKey='r')", "", "o", &["d"]),
    ];
    for (method, address, body, types, letters) in matrix {
        for given_type in ["s", "c", "o"] {
            for given in ["r", "w", "d", "l", "a", "c", "u", "au"] {
                let site = Site::people();
                site.insert("p", "r", "");
                let token = signed_account(account(given_type, given));
                let verb = method.trim_end_matches('*');
                let mut ask = match address.strip_prefix("-secondary/?") {
                    Some(query) => {
                        let path = format!("/devstoreaccount1-secondary/?{query}&{token}");
                        site.ask_path(verb, &path).unsigned()
                    }
                    None => site.with_token(verb, address, &token),
                };
                if !body.is_empty() {
                    ask = ask.json(body);
                }
                if method.ends_with('*') {
                    ask = ask.matching("*");
                }
                let got = ask.send();
                let code = got.header("x-ms-error-code");
                let what = format!("{method} {address} with {given_type} {given}: {}", got.body);
                if !types.contains(given_type) {
                    assert_eq!(code, Some("AuthorizationResourceTypeMismatch"), "{what}");
                } else if letters.iter().any(|set| set.chars().all(|letter| given.contains(letter)))
                {
                    assert!(got.status < 300, "{what}");
                } else {
                    assert_eq!(code, Some("AuthorizationPermissionMismatch"), "{what}");
                }
                assert_eq!(got.status == 403, code.is_some(), "{what}");
            }
        }
    }
}

#[test]
fn f39_account_sas_never_reaches_policies() {
    let site = Site::people();
    let token = signed_account(account("sco", "rwdlacu"));
    for (method, body) in [("GET", ""), ("PUT", "<SignedIdentifiers/>"), ("HEAD", "")] {
        let ask = site.with_token(method, "people?comp=acl", &token).xml(body);
        ask.send().refused_xml(403, "AuthorizationFailure", NOT_AUTHORIZED, "");
    }
}

#[test]
fn f39_account_sas_that_does_not_cover_the_request() {
    let site = Site::people();
    let get = |sas: AccountSas| site.with_token("GET", "Tables", &signed_account(sas)).send();
    get(account("c", "l")).done(200);
    get(AccountSas { services: "bfqt".into(), ..account("sco", "rl") }).done(200);
    let text = "This request is not authorized to perform this operation using this service.";
    let other = AccountSas { services: "bfq".into(), ..account("sco", "rl") };
    get(other).refused(403, "AuthorizationServiceMismatch", text);
    get(account("s", "l")).refused(403, "AuthorizationResourceTypeMismatch", NO_TYPE);
    get(account("c", "r")).refused(403, "AuthorizationPermissionMismatch", NO_PERMISSION);
    for change in [
        (|sas| sas.terms.expiry = None) as fn(&mut AccountSas),
        |sas| sas.terms.expiry = some("2024-02-03"),
        |sas| sas.terms.start = some("2024-02-04"),
        |sas| sas.terms.permissions = None,
        |sas| sas.terms.version = Version::known("2015-02-21"),
        |sas| sas.terms.version = None,
    ] {
        let mut sas = account("sco", "rl");
        change(&mut sas);
        get(sas).refused(403, "AuthenticationFailed", FAILED);
    }
    let mut sas = account("c", "l");
    sas.terms.addresses = some("10.0.0.1");
    get(sas).fails(403, "AuthorizationSourceIPMismatch");
    let mut sas = account("c", "l");
    sas.terms.protocols = some("https");
    get(sas).fails(403, "AuthorizationProtocolMismatch");
    // A token for an account cannot use a policy, so `si` has no effect.
    let token = format!("{}&si=p1", signed_account(account("c", "l")));
    site.with_token("GET", "Tables", &token).send().done(200);
    // The secondary location can be read, but not written.
    let token = signed_account(account("sco", "rwdlacu"));
    let ask = |method| {
        site.ask_path(method, &format!("/devstoreaccount1-secondary/Tables?{token}")).unsigned()
    };
    ask("GET").send().done(200);
    let got = ask("POST").json(r#"{"TableName":"new"}"#).send();
    got.fails(403, "InsufficientAccountPermissions");
}
