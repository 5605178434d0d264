//! Tests error responses: their JSON and XML bodies, and the status and message of each code.

use super::*;
use crate::error::{Code, Error, ErrorKind};
use crate::rest::protocol::fault::Fault;

#[test]
fn f36_errors_have_two_shapes() {
    let site = Site::people();
    site.insert("p", "r", "");
    let got = site.post("people", r#"{"PartitionKey":"p","RowKey":"r"}"#).send();
    let got = got.refused(409, "EntityAlreadyExists", "The specified entity already exists.");
    assert_eq!(got.header("x-ms-request-id"), Some(&*got.request_id));
    assert!(got.has(&format!("\\nRequestId:{}\\nTime:", got.request_id)), "{}", got.body);
    // The body is the same at every metadata level.
    for accept in ["application/json;odata=nometadata", "application/json;odata=fullmetadata"] {
        let got = site.get(&person("none")).accept(accept).send();
        got.refused(404, "ResourceNotFound", "The specified resource does not exist.");
    }
    // The time always has seven digits.
    let got = site.at("2024-02-03T05:00:00Z").get("nobody()").send();
    let got = got.refused(404, "TableNotFound", "The table specified does not exist.");
    assert!(got.has("Time:2024-02-03T05:00:00.0000000Z"));
    for (ask, status, code, text, details) in [
        (
            site.get("nobody?comp=acl"),
            404,
            "TableNotFound",
            "The table specified does not exist.",
            "",
        ),
        (
            site.ask("PUT", "people?comp=acl").xml("<x>"),
            400,
            "InvalidXmlDocument",
            "XML specified is not syntactically valid.",
            "",
        ),
        (
            site.get("people?comp=other"),
            400,
            "InvalidQueryParameterValue",
            "Value for one of the query parameters specified in the request URI is invalid.",
            "<QueryParameterName>comp</QueryParameterName><QueryParameterValue>other</QueryParameterValue>\
             <Reason>Not known of this resource and method.</Reason>",
        ),
        (
            site.ask("OPTIONS", "people").header("Origin", "http://a.example"),
            400,
            "InvalidHeaderValue",
            "The value for one of the HTTP headers is not in the correct format.",
            "<HeaderName>Access-Control-Request-Method</HeaderName><HeaderValue></HeaderValue>",
        ),
    ] {
        ask.send().refused_xml(status, code, text, details);
    }
}

#[test]
fn f36_errors_of_the_engine_are_reported_without_detail() {
    let site = Site::people();
    let request = site.get("people()").request;
    let error = Error::new(ErrorKind::Corruption, "record at byte 32768 of /var/db/000004.wal");
    let reply = site.service.refuse(&request, Fault::from(error));
    let body = String::from_utf8(reply.body).unwrap();
    assert_eq!(reply.status.as_u16(), 500);
    assert!(!body.contains("wal"), "{body}");
    let text = "Server encountered an internal error. Please try again after some time.";
    assert!(body.contains("\"code\":\"InternalError\"") && body.contains(text), "{body}");
}

/// Code, status and message of each error that the server may report. The message is empty if no
/// response of the Azure service with this code was recorded.
const CODES: &[(&str, u16, &str)] = &[
    (
        "CommandsInBatchActOnDifferentPartitions",
        400,
        "All commands in a batch must operate on same entity group.",
    ),
    ("DuplicatePropertiesSpecified", 400, "A property is specified more than one time."),
    ("EntityAlreadyExists", 409, "The specified entity already exists."),
    ("EntityTooLarge", 400, "The entity is larger than the maximum allowed size (1MB)."),
    (
        "InternalError",
        500,
        "Server encountered an internal error. Please try again after some time.",
    ),
    (
        "InvalidDuplicateRow",
        400,
        "The batch request contains multiple changes with same row key. An entity can appear only once in a batch request.",
    ),
    ("InvalidInput", 400, "One of the request inputs is not valid."),
    ("InvalidResourceName", 400, "The specifed resource name contains invalid characters."),
    ("InvalidValueType", 400, "The value specified is invalid."),
    (
        "NotImplemented",
        501,
        "The requested operation is not implemented on the specified resource.",
    ),
    ("OperationTimedOut", 500, "The operation could not be completed within the permitted time."),
    ("OutOfRangeInput", 400, "One of the request inputs is out of range."),
    ("PropertiesNeedValue", 400, "The values are not specified for all properties in the entity."),
    ("PropertyNameInvalid", 400, "The property name is invalid."),
    ("PropertyNameTooLong", 400, "The property name exceeds the maximum allowed length."),
    (
        "PropertyValueTooLarge",
        400,
        "The property value exceeds the maximum allowed size (64KB). If the property value is a string, it is UTF-16 encoded and the maximum number of characters should be 32K or less.",
    ),
    (
        "RequestBodyTooLarge",
        413,
        "The request body is too large and exceeds the maximum permissible limit.",
    ),
    ("ResourceNotFound", 404, "The specified resource does not exist."),
    (
        "ServerBusy",
        503,
        "The server is currently unable to receive requests. Please retry your request.",
    ),
    ("TableAlreadyExists", 409, "The table specified already exists."),
    ("TableBeingDeleted", 409, "The specified table is being deleted."),
    ("TableNotFound", 404, "The table specified does not exist."),
    ("TooManyProperties", 400, "The entity contains more properties than allowed."),
    (
        "UpdateConditionNotSatisfied",
        412,
        "The update condition specified in the request was not satisfied.",
    ),
    ("AtomFormatNotSupported", 415, "Atom format is not supported."),
    (
        "HostInformationNotPresent",
        400,
        "The required host information is not present in the request. You must send a non-empty Host header or include the absolute URI in the request line.",
    ),
    ("JsonFormatNotSupported", 415, "JSON format is not supported."),
    ("MediaTypeNotSupported", 415, "None of the provided media types are supported"),
    ("MethodNotAllowed", 405, "The requested method is not allowed on the specified resource."),
    ("XMethodIncorrectCount", 400, "More than one X-HTTP-Method is specified."),
    ("XMethodIncorrectValue", 400, "The specified X-HTTP-Method is invalid."),
    (
        "XMethodNotUsingPost",
        400,
        "The request uses X-HTTP-Method with an HTTP verb other than POST.",
    ),
    ("AuthorizationFailure", 403, "This request is not authorized to perform this operation."),
    (
        "AuthorizationPermissionMismatch",
        403,
        "This request is not authorized to perform this operation using this permission.",
    ),
    (
        "AuthorizationProtocolMismatch",
        403,
        "This request is not authorized to perform this operation using this protocol.",
    ),
    (
        "AuthorizationResourceTypeMismatch",
        403,
        "This request is not authorized to perform this operation using this resource type.",
    ),
    (
        "AuthorizationServiceMismatch",
        403,
        "This request is not authorized to perform this operation using this service.",
    ),
    (
        "AuthenticationFailed",
        403,
        "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.",
    ),
    ("CorsPreflightFailure", 403, ""),
    ("FeatureVersionMismatch", 409, ""),
    ("InsufficientAccountPermissions", 403, ""),
    ("InvalidAuthenticationInfo", 400, ""),
    ("InvalidHeaderValue", 400, ""),
    ("InvalidMd5", 400, ""),
    ("InvalidQueryParameterValue", 400, ""),
    ("InvalidUri", 400, ""),
    ("InvalidXmlDocument", 400, ""),
    ("InvalidXmlNodeValue", 400, ""),
    ("JsonVerboseFormatNotSupported", 415, ""),
    ("Md5Mismatch", 400, ""),
    ("MissingContentLengthHeader", 411, ""),
    ("MissingRequiredHeader", 400, ""),
    ("MissingRequiredQueryParameter", 400, ""),
    ("MissingRequiredXmlNode", 400, ""),
    ("NoAuthenticationInformation", 401, ""),
    ("RequestUrlFailedToParse", 400, ""),
    ("UnsupportedXmlNode", 400, ""),
];

#[test]
fn f36_errors_have_the_codes_of_the_table() {
    let own = Code::ALL.iter().map(|code| Fault::from(*code));
    let known = crate::rest::protocol::fault::Known::ALL.iter().map(|known| Fault::from(*known));
    let faults: Vec<Fault> = own.chain(known).collect();
    for (code, status, text) in CODES {
        let fault = faults.iter().find(|fault| fault.code == *code);
        let fault = fault.unwrap_or_else(|| panic!("there is no {code}"));
        assert_eq!(fault.status, *status, "{code}");
        assert!(text.is_empty() || fault.message == *text, "{code}: {}", fault.message);
        assert!(!fault.message.is_empty(), "{code}");
    }
}

#[test]
fn f36_errors_about_checksums_of_bodies() {
    let site = Site::people();
    let body = r#"{"PartitionKey":"p","RowKey":"r"}"#;
    let send = |md5: &str| site.post("people", body).header("Content-MD5", md5).send();
    for md5 in ["x", "AAAA", "2VJhdZUhREIjY0yGA9BE7g"] {
        send(md5).fails(400, "InvalidMd5");
    }
    send("AAAAAAAAAAAAAAAAAAAAAA==").fails(400, "Md5Mismatch");
    assert_eq!(site.rows(""), "");
    // This is the MD5 checksum of the body, as computed by openssl.
    send("2VJhdZUhREIjY0yGA9BE7g==").done(201);
}
