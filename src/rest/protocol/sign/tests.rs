//! Tests request signatures with published test vectors, and tests that a changed request has no
//! valid signature.

use super::*;
use crate::rest::protocol::address::Parameters;

const DATE: &str = "Mon, 02 Jan 2023 03:04:05 GMT";

fn key() -> AccountKey {
    AccountKey::read(DEVELOPMENT_KEY).unwrap()
}

fn request<'a>(method: &'a str, path: &'a str) -> SignedParts<'a> {
    SignedParts { method, path, comp: None, content_md5: "", content_type: "", date: DATE }
}

#[track_caller]
fn check(scheme: Scheme, request: SignedParts<'_>, signature: &str) {
    let text = request.sign(scheme, DEVELOPMENT_ACCOUNT, &key());
    assert_eq!(text, format!("{} {DEVELOPMENT_ACCOUNT}:{signature}", scheme.as_str()));
    let read = Authorization::read(&text).unwrap();
    assert_eq!(read, Authorization { scheme, account: DEVELOPMENT_ACCOUNT, signature });
    assert_eq!(read.verify(&request, &[key()]), Ok(()));
}

#[test]
fn vectors() {
    let tables = request("GET", "/devstoreaccount1/Tables");
    check(Scheme::SharedKey, tables, "oy/oMyUTLLXTXucivLhylPYZk9viyZce0GqZhHTZFog=");
    check(Scheme::SharedKeyLite, tables, "MwED/VWpkCBrzCToBe7eWkVhi3BY7VPzThzlcpeWCL0=");
    let insert = request("POST", "/devstoreaccount1/people");
    let insert = SignedParts { content_type: "application/json", ..insert };
    check(Scheme::SharedKey, insert, "mNfYWyLSWLKlFh4KxsOvUxurF01K5csFr6jgUT9FVXc=");
    let acl = SignedParts { comp: Some("acl"), ..request("GET", "/devstoreaccount1/people") };
    check(Scheme::SharedKey, acl, "yOhIX/n7zASvyTJJP3kR4aGHXPa0jAnP1+V6CLu2Y/M=");
    let path = "/devstoreaccount1/people(PartitionKey='OHara%20x',RowKey='1')";
    check(Scheme::SharedKey, request("GET", path), "o2QRmq7QQqqGiXdJotTKwrMsf47zYkirUX4NXofZcBM=");
}

#[test]
fn requests_are_signed_in_the_form_of_their_header() {
    let headers = [
        ("x-ms-date", DATE),
        ("Date", "Tue, 03 Jan 2023 03:04:05 GMT"),
        ("content-type", "application/json"),
        ("Content-MD5", "x"),
    ];
    let query = Parameters::read("restype=service&comp=properties&$top=5").unwrap();
    let request = SignedParts::of("GET", "/acme", &query, &headers[..]);
    assert_eq!(
        string_to_sign(Scheme::SharedKey, "acme", &request),
        format!("GET\nx\napplication/json\n{DATE}\n/acme/acme?comp=properties")
    );
    assert_eq!(
        string_to_sign(Scheme::SharedKeyLite, "acme", &request),
        format!("{DATE}\n/acme/acme?comp=properties")
    );
    let query = Parameters::default();
    let request = SignedParts::of("GET", "", &query, &headers[1..2]);
    let text = string_to_sign(Scheme::SharedKeyLite, "acme", &request);
    assert_eq!(text, "Tue, 03 Jan 2023 03:04:05 GMT\n/acme/");
}

#[test]
fn any_change_breaks_the_signature() {
    let signed = SignedParts { content_type: "application/json", ..request("POST", "/a/people") };
    let text = signed.sign(Scheme::SharedKey, "a", &key());
    let authorization = Authorization::read(&text).unwrap();
    for changed in [
        SignedParts { method: "PUT", ..signed },
        SignedParts { path: "/a/People", ..signed },
        SignedParts { path: "/a/people/", ..signed },
        SignedParts { comp: Some("acl"), ..signed },
        SignedParts { content_md5: "x", ..signed },
        SignedParts { content_type: "", ..signed },
        SignedParts { date: "Mon, 02 Jan 2023 03:04:06 GMT", ..signed },
    ] {
        let fault = authorization.verify(&changed, &[key()]).unwrap_err();
        assert_eq!((&*fault.code, fault.status), ("AuthenticationFailed", 403), "{changed:?}");
        assert_eq!(
            fault.message,
            "Server failed to authenticate the request. Make sure the value of Authorization header is \
             formed correctly including the signature."
        );
        let (name, detail) = &fault.details[0];
        assert_eq!(name, "AuthenticationErrorDetail");
        assert!(detail.contains(changed.path) && !detail.contains(DEVELOPMENT_KEY));
    }
    let cut = &text[..text.len() - 4];
    for odd in
        [cut, &format!("{cut}AAA="), &format!("{text}="), "SharedKey a:é", "SharedKey a:AAAA"]
    {
        assert!(Authorization::read(odd).unwrap().verify(&signed, &[key()]).is_err(), "{odd}");
    }
}

#[test]
fn either_key_is_accepted_and_a_missing_key_is_not() {
    let other = AccountKey::read("AAECAwQ=").unwrap();
    let request = request("GET", "/a/people");
    let text = request.sign(Scheme::SharedKey, "a", &key());
    let authorization = Authorization::read(&text).unwrap();
    assert_eq!(authorization.verify(&request, &[other.clone(), key()]), Ok(()));
    assert_eq!(authorization.verify(&request, &[key(), other.clone()]), Ok(()));
    assert!(authorization.verify(&request, &[other]).is_err());
    assert!(authorization.verify(&request, &[]).is_err());
}

#[test]
fn the_secondary_accepts_both_signed_paths() {
    let signed = |path| request("GET", path).sign(Scheme::SharedKey, "acme", &key());
    for (sent, path) in [
        ("/acme-secondary/people", "/acme-secondary/people"),
        ("/acme-secondary/people", "/acme/people"),
        ("/acme-secondary", "/acme"),
    ] {
        let text = signed(path);
        let authorization = Authorization::read(&text).unwrap();
        assert_eq!(authorization.verify(&request("GET", sent), &[key()]), Ok(()), "{path}");
    }
    let text = signed("/acme/people").replace("acme:", "acme-secondary:");
    let authorization = Authorization::read(&text).unwrap();
    assert_eq!(authorization.verify(&request("GET", "/acme-secondary/people"), &[key()]), Ok(()));
    let text = signed("/acmeX/people");
    assert!(
        Authorization::read(&text)
            .unwrap()
            .verify(&request("GET", "/acme/people"), &[key()])
            .is_err()
    );
}

#[test]
fn malformed_headers() {
    for text in [
        "",
        "SharedKey",
        "SharedKey ",
        "SharedKey acme",
        "SharedKey :x",
        "SharedKey acme:",
        "Basic acme:x",
        "sharedkey acme:x",
        "acme:x",
    ] {
        let fault = Authorization::read(text).unwrap_err();
        assert_eq!((&*fault.code, fault.status), ("InvalidAuthenticationInfo", 400), "{text}");
    }
    let fault = Authorization::read("Bearer abc").unwrap_err();
    assert_eq!((&*fault.code, fault.status), ("InvalidAuthenticationInfo", 401));
}

#[test]
fn dates_may_be_a_quarter_of_an_hour_off() {
    let check = |name: &str, text: &str, now: &str| {
        let now = now.parse().unwrap();
        check_date(&[(name, text)][..], now).map_err(|fault| fault.code.into_owned())
    };
    for now in ["2023-01-02T03:04:05Z", "2023-01-02T03:19:05Z", "2023-01-02T02:49:05Z"] {
        assert_eq!(check("x-ms-date", DATE, now), Ok(()), "{now}");
        assert_eq!(check("date", DATE, now), Ok(()), "{now}");
    }
    let failed = Err("AuthenticationFailed".to_owned());
    for now in ["2023-01-02T03:19:06Z", "2023-01-02T02:49:04Z", "1601-01-01T00:00:00Z"] {
        assert_eq!(check("x-ms-date", DATE, now), failed, "{now}");
    }
    for text in ["", "now", "2023-01-02T03:04:05Z"] {
        assert_eq!(check("x-ms-date", text, "2023-01-02T03:04:05Z"), failed, "{text}");
    }
    let both = [("Date", DATE), ("x-ms-date", "Tue, 03 Jan 2023 03:04:05 GMT")];
    assert_eq!(check_date(&both[..], "2023-01-03T03:04:05Z".parse().unwrap()), Ok(()));
    let none: [(&str, &str); 0] = [];
    assert!(check_date(&none[..], DateTime::MAX).is_err());
}

#[test]
fn keys_are_not_shown_in_debug_output() {
    assert_eq!(format!("{:?}", key()), "AccountKey(…)");
    for text in ["", " ", "x", "é", "AAA"] {
        assert_eq!(AccountKey::read(text), None, "{text}");
    }
    assert_eq!(AccountKey::read(&format!(" {DEVELOPMENT_KEY}\n")), Some(key()));
}
