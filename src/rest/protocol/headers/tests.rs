//! Tests the meaning of each valid header value, and the errors of invalid ones.

use super::*;

const ETAG: &str = "W/\"datetime'2022-02-01T20%3A52%3A48.011206Z'\"";

fn query(text: &str) -> Parameters {
    Parameters::read(text).unwrap()
}

fn code<T: std::fmt::Debug>(result: Result<T, Fault>) -> String {
    let fault = result.unwrap_err();
    format!("{} {}", fault.status, fault.code)
}

/// No headers at all.
const NONE: &[(&str, &str)] = &[];

#[test]
fn header_names_ignore_case_and_values_are_trimmed() {
    let headers = [("ACCEPT", " a "), ("accept", "b")];
    assert_eq!(headers.value("Accept"), Some("a"));
    assert_eq!(headers.nth("Accept", 1), Some("b"));
    assert_eq!((headers.nth("Accept", 2), headers.value("Accept-Charset")), (None, None));
}

#[test]
fn versions() {
    let of = |version: &str, text: &str| {
        let version = Version::of(&[("x-ms-version", version)][..], &query(text));
        version.map(|version| version.map(Version::as_str))
    };
    for version in VERSIONS {
        assert_eq!(of(version, ""), Ok(Some(*version)));
        assert_eq!(of("2009-04-14", &format!("api-version={version}")), Ok(Some(*version)));
    }
    assert!(VERSIONS.is_sorted());
    assert_eq!(Version::of(NONE, &query("")), Ok(None));
    assert_eq!(Version::of(NONE, &query("sv=2019-02-02")), Ok(Some(Version::DEFAULT)));
    assert_eq!(Version::of(NONE, &query("sv=nonsense")), Ok(None));
    assert_eq!(of("2017-11-09", "sv=2019-02-02"), Ok(Some("2017-11-09")));
    for text in ["", "2019-02-03", "latest", "9999-01-01"] {
        assert_eq!(code(of(text, "")), "400 InvalidHeaderValue", "{text}");
    }
    assert_eq!(code(of("2019-02-02", "api-version=x")), "400 InvalidQueryParameterValue");
    let fault = of("x", "").unwrap_err();
    assert_eq!(fault.details[0], ("HeaderName".into(), "x-ms-version".into()));
    for version in [
        Version::DEFAULT,
        Version::UPSERTS,
        Version::SIGNED_VERSION,
        Version::JSON,
        Version::TABLE_RESOURCE,
        Version::ACCOUNT_SAS,
        Version::ENCRYPTION_SCOPE,
    ] {
        assert_eq!(Version::known(version.as_str()), Some(version));
    }
}

#[test]
fn data_service_versions_have_suffixes() {
    let of = |text: &str| data_service_versions(&[("dataserviceversion", text)][..]);
    for (text, expected) in [("3.0", 3), ("3.0;", 3), ("2.0;NetFx", 2), (" 1.0 ;x", 1)] {
        assert_eq!(of(text), Ok([Some(expected), None]), "{text}");
    }
    assert_eq!(of(""), Ok([None, None]));
    assert_eq!(data_service_versions(NONE), Ok([None, None]));
    for text in ["4.0", "3", "x", ";"] {
        assert_eq!(code(of(text)), "400 InvalidHeaderValue", "{text}");
    }
}

#[track_caller]
fn accepts(accept: &str, expected: Level) {
    let level = Level::of(&[("Accept", accept)][..], &query(""), Version::DEFAULT);
    assert_eq!(level, Ok(expected), "{accept}");
}

#[track_caller]
fn accepts_not(accept: &str, expected: &str) {
    let level = Level::of(&[("Accept", accept)][..], &query(""), Version::DEFAULT);
    assert_eq!(code(level), format!("415 {expected}"), "{accept}");
}

#[test]
fn levels() {
    accepts("application/json;odata=nometadata", Level::None);
    accepts("application/json; ODATA=NoMetadata ;charset=utf-8", Level::None);
    accepts("application/json;odata=minimalmetadata", Level::Minimal);
    accepts("Application/JSON", Level::Minimal);
    accepts("application/json;odata=\"fullmetadata\"", Level::Full);
    accepts("*/*", Level::Minimal);
    accepts("", Level::Minimal);
    accepts("text/html,application/xml;q=0.9,*/*;q=0.8", Level::Minimal);
    accepts("application/atom+xml, application/json;odata=fullmetadata", Level::Full);
    assert_eq!(Level::of(NONE, &query(""), Version::DEFAULT), Ok(Level::Minimal));
    for level in [Level::None, Level::Minimal, Level::Full] {
        accepts(level.accept(), level);
        accepts(level.content_type(), level);
    }
}

#[test]
fn formats_that_are_refused() {
    accepts_not("application/atom+xml", "AtomFormatNotSupported");
    accepts_not("application/atom+xml,application/xml", "AtomFormatNotSupported");
    accepts_not("application/json;odata=verbose", "JsonVerboseFormatNotSupported");
    accepts_not("application/json;odata=lots", "MediaTypeNotSupported");
    accepts_not("application/xml", "MediaTypeNotSupported");
    accepts_not("text/html", "MediaTypeNotSupported");
    accepts_not(",", "MediaTypeNotSupported");
    accepts_not(";;=", "MediaTypeNotSupported");
    let old = Version::known("2012-02-12").unwrap();
    for accept in [NONE, &[("Accept", "application/json")]] {
        assert_eq!(code(Level::of(accept, &query(""), old)), "415 JsonFormatNotSupported");
    }
    let headers = [("Accept", "application/json"), ("MaxDataServiceVersion", "2.0;NetFx")];
    let level = Level::of(&headers[..], &query(""), Version::DEFAULT);
    assert_eq!(code(level), "415 JsonFormatNotSupported");
}

#[test]
fn the_format_parameter_takes_precedence() {
    let of = |format: &str| {
        let query = query(&format!("$format={format}"));
        Level::of(&[("Accept", "application/atom+xml")][..], &query, Version::DEFAULT)
    };
    assert_eq!(of("json"), Ok(Level::Minimal));
    assert_eq!(of("application/json;odata=fullmetadata"), Ok(Level::Full));
    assert_eq!(of("application/json%3Bodata%3Dnometadata"), Ok(Level::None));
    assert_eq!(code(of("atom")), "415 AtomFormatNotSupported");
    assert_eq!(code(of("verbosejson")), "415 JsonVerboseFormatNotSupported");
    assert_eq!(code(of("xml")), "415 MediaTypeNotSupported");
    // An empty `$format` is ignored, so this is the error for a missing `Accept`.
    assert_eq!(code(of("")), "415 AtomFormatNotSupported");
}

#[test]
fn bodies_are_json() {
    let check = |text: &str| check_json_body(&[("content-type", text)][..]);
    for text in ["application/json", "application/json;odata=nometadata", "", "APPLICATION/JSON"] {
        assert_eq!(check(text), Ok(()), "{text}");
    }
    assert_eq!(check_json_body(NONE), Ok(()));
    assert_eq!(code(check("application/atom+xml")), "415 AtomFormatNotSupported");
    assert_eq!(code(check("text/plain")), "415 MediaTypeNotSupported");
}

#[test]
fn preferences() {
    let of = |text: &str| Preference::of(&[("prefer", text)][..]);
    for preference in [Preference::Content, Preference::NoContent] {
        assert_eq!(of(preference.as_str()), Some(preference));
    }
    assert_eq!(of("x, return-no-content"), Some(Preference::NoContent));
    assert_eq!((of("return"), of("")), (None, None));
    let old = [("Prefer", "return-no-content"), ("DataServiceVersion", "2.0")];
    assert_eq!(Preference::of(&old[..]), None);
    let new = [("Prefer", "return-no-content"), ("DataServiceVersion", "3.0;")];
    assert_eq!(Preference::of(&new[..]), Some(Preference::NoContent));
}

#[test]
fn conditions() {
    let of =
        |text: &str, method| Condition::of(&[("if-match", text)][..], method, Version::DEFAULT);
    let etag: ETag = ETAG.parse().unwrap();
    for method in [Method::Put, Method::Merge, Method::Delete] {
        assert_eq!(of("*", method), Ok(Condition::Any));
        assert_eq!(of(ETAG, method), Ok(Condition::Is(etag.clone())));
        assert_eq!(of(&ETAG.replace("%3A", ":"), method), Ok(Condition::Is(etag.clone())));
        assert_eq!(Condition::of(NONE, method, Version::DEFAULT), Ok(Condition::None));
        for text in ["test", "", "W/\"wrong\"", "\"*\"", &format!("{ETAG},{ETAG}")] {
            assert_eq!(code(of(text, method)), "400 InvalidInput", "{text}");
        }
    }
    assert_eq!(
        of("test", Method::Put).unwrap_err().message,
        "The etag value 'test' specified in one of the request headers is not valid. \
         Please make sure only one etag value is specified and is valid."
    );
    assert_eq!(of("*", Method::Post), Ok(Condition::None));
    assert_eq!(of(ETAG, Method::Post), Ok(Condition::None));
    assert_eq!(code(of("junk", Method::Post)), "400 InvalidInput");
}

#[test]
fn a_repeated_condition_is_refused() {
    for (first, second) in [("*", "*"), (ETAG, "*"), ("*", ETAG), (ETAG, ETAG), (ETAG, "")] {
        let headers = [("If-Match", first), ("if-match", second)];
        for method in [Method::Put, Method::Merge, Method::Delete] {
            let fault = Condition::of(&headers[..], method, Version::DEFAULT).unwrap_err();
            assert_eq!((&*fault.code, fault.status), ("InvalidInput", 400));
            assert_eq!(
                fault.message,
                format!(
                    "The etag value '{first},{second}' specified in one of the request headers is not valid. \
                     Please make sure only one etag value is specified and is valid."
                )
            );
        }
    }
}

#[test]
fn conditions_that_are_never_valid() {
    let message = |headers: &[(&str, &str)], method| {
        let fault = Condition::of(headers, method, Version::DEFAULT).unwrap_err();
        assert_eq!((&*fault.code, fault.status), ("InvalidInput", 400));
        fault.message
    };
    let none_match = [("If-None-Match", "*")];
    assert!(message(&none_match, Method::Put).ends_with("for PUT operations."));
    assert!(message(&none_match, Method::Merge).ends_with("for PUT operations."));
    assert!(message(&none_match, Method::Delete).ends_with("for DELETE operations."));
    assert!(message(&none_match, Method::Post).ends_with("for POST operations."));
    let both = [("If-Match", "*"), ("If-None-Match", "*")];
    assert!(message(&both, Method::Put).starts_with("Both If-Match and If-None-Match"));
    let old = Version::known("2009-09-19").unwrap();
    assert_eq!(code(Condition::of(NONE, Method::Put, old)), "400 MissingRequiredHeader");
    assert_eq!(Condition::of(NONE, Method::Delete, old), Ok(Condition::None));
}

#[test]
fn methods_and_tunnels() {
    let of = |name: &str, values: &[&str]| {
        let headers: Vec<_> = values.iter().map(|value| ("x-http-method", *value)).collect();
        Method::of(name, &headers[..])
    };
    for (name, method) in [
        ("GET", Method::Get),
        ("HEAD", Method::Head),
        ("OPTIONS", Method::Options),
        ("POST", Method::Post),
        ("PUT", Method::Put),
        ("PATCH", Method::Merge),
        ("DELETE", Method::Delete),
    ] {
        assert_eq!(of(name, &[]), Ok(method));
    }
    assert_eq!(of("MERGE", &[]), Ok(Method::Merge));
    assert_eq!(of("POST", &["MERGE"]), Ok(Method::Merge));
    assert_eq!(of("POST", &[" patch "]), Ok(Method::Merge));
    assert_eq!(of("POST", &["PUT"]), Ok(Method::Put));
    assert_eq!(of("POST", &["DELETE"]), Ok(Method::Delete));
    assert_eq!(code(of("PUT", &["MERGE"])), "400 XMethodNotUsingPost");
    assert_eq!(code(of("FROB", &["MERGE"])), "400 XMethodNotUsingPost");
    assert_eq!(code(of("POST", &["MERGE", "MERGE"])), "400 XMethodIncorrectCount");
    assert_eq!(code(of("POST", &["MERGE, PUT"])), "400 XMethodIncorrectCount");
    for value in ["GET", "POST", "", "FROB"] {
        assert_eq!(code(of("POST", &[value])), "400 XMethodIncorrectValue", "{value}");
    }
    for name in ["FROB", "get", "", "TRACE"] {
        assert_eq!(code(of(name, &[])), "405 MethodNotAllowed", "{name}");
    }
}

#[test]
fn media_types_have_parameters() {
    let media = Media::new("multipart/mixed; Boundary=\"a b\" ; x=1;y;boundary=c");
    assert!(media.is("Multipart/Mixed") && !media.is("multipart"));
    assert_eq!(media.parameter("boundary"), Some("a b"));
    assert_eq!((media.parameter("x"), media.parameter("y")), (Some("1"), None));
    assert_eq!(Media::new("").parameter("x"), None);
    assert_eq!(Media::new(";x=\"").parameter("x"), Some("\""));
}

#[test]
fn ids_of_clients_are_echoed_up_to_a_length() {
    let of = |id: &str| client_request_id(&[("X-MS-Client-Request-Id", id)][..]).map(str::len);
    assert_eq!(of("abc"), Some(3));
    assert_eq!(of(&"x".repeat(1024)), Some(1024));
    assert_eq!(of(&"é".repeat(1024)), Some(2048));
    assert_eq!((of(&"x".repeat(1025)), of("")), (None, None));
}
