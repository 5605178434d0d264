//! Tests which browser requests CORS rules allow, and the headers of the answers.

use super::*;

fn rule(origins: &str, methods: &str, allowed: &str, exposed: &str) -> CorsRule {
    let list = |text: &str| -> Vec<String> {
        text.split(',').filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
    };
    CorsRule {
        origins: list(origins),
        methods: list(methods),
        max_age_seconds: 7,
        exposed: list(exposed),
        allowed: list(allowed),
    }
}

fn ask(rules: &[CorsRule], origin: &str, method: &str, headers: &str) -> Result<String, String> {
    let given = [
        ("origin", origin),
        ("access-control-request-method", method),
        ("access-control-request-headers", headers),
    ];
    let answer = preflight(rules, &given[..]);
    let answer = answer.map_err(|fault| format!("{} {}", fault.status, fault.code))?;
    Ok(shown(answer))
}

fn shown(answer: Answer) -> String {
    let lines: Vec<_> = answer
        .into_iter()
        .map(|(name, value)| format!("{}={value}", name.trim_start_matches("Access-Control-")))
        .collect();
    lines.join(" ")
}

#[test]
fn preflights() {
    let rules = [
        rule("http://a,http://b", "GET,PUT", "x-ms-meta-*,Content-Type", ""),
        rule("http://a", "MERGE", "*", ""),
        rule("*", "DELETE", "", ""),
    ];
    let yes = "Allow-Origin=http://b Allow-Methods=PUT Allow-Headers=content-type, X-MS-Meta-x Max-Age=7 Allow-Credentials=true";
    assert_eq!(ask(&rules, "http://b", "PUT", "content-type, X-MS-Meta-x").as_deref(), Ok(yes));
    let yes = "Allow-Origin=http://a Allow-Methods=MERGE Allow-Headers=anything Max-Age=7 Allow-Credentials=true";
    assert_eq!(ask(&rules, "http://a", "MERGE", "anything").as_deref(), Ok(yes));
    let yes = "Allow-Origin=* Allow-Methods=DELETE Max-Age=7 Allow-Credentials=true";
    assert_eq!(ask(&rules, "http://x", "DELETE", "").as_deref(), Ok(yes));
    let no = Err("403 CorsPreflightFailure".to_owned());
    assert_eq!(ask(&rules, "HTTP://A", "GET", ""), no);
    assert_eq!(ask(&rules, "http://b", "MERGE", ""), no);
    assert_eq!(ask(&rules, "http://b", "PUT", "content-type,other"), no);
    assert_eq!(ask(&rules, "http://b", "PUT", "x-ms-met"), no);
    assert_eq!(ask(&rules, "http://x", "DELETE", "other"), no);
    assert_eq!(ask(&[], "http://a", "GET", ""), no);
    let incomplete = Err("400 InvalidHeaderValue".to_owned());
    assert_eq!(ask(&rules, "", "GET", ""), incomplete);
    assert_eq!(ask(&rules, "http://a", "", ""), incomplete);
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = [rule("*", "GET", "", ""), rule("http://a", "GET", "*", "")];
    assert!(ask(&rules, "http://a", "GET", "").unwrap().starts_with("Allow-Origin=* "));
    assert!(ask(&rules, "http://a", "GET", "x").unwrap().starts_with("Allow-Origin=http://a "));
}

#[test]
fn actual_requests() {
    let names = ["ETag", "x-ms-meta-a", "x-ms-version"];
    let of = |rule: CorsRule, method: &str, origin| shown(actual(&[rule], method, origin, &names));
    let exact = || rule("http://a", "GET", "", "x-ms-meta-*,Other");
    assert_eq!(
        of(exact(), "GET", Some("http://a")),
        "Allow-Origin=http://a Expose-Headers=Other,x-ms-meta-a Allow-Credentials=true Vary=Origin"
    );
    assert_eq!(of(exact(), "PUT", Some("http://a")), "");
    // A cache must not use the response to a read for a page of another origin.
    for origin in [Some("http://b"), Some(""), None] {
        for method in ["GET", "HEAD"] {
            assert_eq!(of(exact(), method, origin), "Vary=Origin", "{method} {origin:?}");
        }
    }
    let rules = [exact(), rule("*", "GET", "", "")];
    let shown_to = |origin| shown(actual(&rules, "GET", origin, &names));
    assert_eq!(shown_to(Some("http://b")), "Allow-Origin=* Vary=Origin");
    assert_eq!(shown_to(None), "Allow-Origin=* Vary=Origin");
    assert_eq!(shown(actual(&[], "GET", None, &names)), "");
    let open = || rule("*", "GET,PUT", "", "*");
    let all = "Allow-Origin=* Expose-Headers=ETag,x-ms-meta-a,x-ms-version";
    assert_eq!(of(open(), "GET", Some("http://b")), all);
    assert_eq!(of(open(), "GET", None), all, "the rule matches without an Origin header, too");
    assert_eq!(of(open(), "PUT", Some("http://b")), all);
    assert_eq!(of(open(), "PUT", None), "");
    assert_eq!(of(rule("*", "GET", "", ""), "GET", Some(" ")), "Allow-Origin=*");
    assert_eq!(
        of(rule("*", "GET", "", "etag,*"), "GET", None),
        "Allow-Origin=* Expose-Headers=etag,x-ms-meta-a,x-ms-version"
    );
}
