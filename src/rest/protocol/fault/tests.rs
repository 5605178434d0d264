//! Tests error responses: the service's JSON and XML, written and read, and the responses to errors
//! of the engine.

use super::*;
use crate::error::ErrorKind;
use crate::rest::protocol::answer::{read_json, read_xml};

fn occasion() -> Occasion<'static> {
    let time = "2024-02-03T04:05:06.12Z".parse().unwrap();
    Occasion { request_id: "7c3f0000-0000-0000-0000-000000000001", time }
}

fn json(fault: &Fault) -> String {
    let mut out = Vec::new();
    fault.put_json(&mut out, occasion());
    String::from_utf8(out).unwrap()
}

fn xml(fault: &Fault) -> String {
    let mut out = Vec::new();
    fault.put_xml(&mut out, occasion());
    String::from_utf8(out).unwrap()
}

#[test]
fn the_json_shape() {
    let fault = Fault::from(Code::EntityAlreadyExists);
    assert_eq!(
        json(&fault),
        "{\"odata.error\":{\"code\":\"EntityAlreadyExists\",\"message\":{\"lang\":\"en-US\",\
         \"value\":\"The specified entity already exists.\\nRequestId:7c3f0000-0000-0000-0000-000000000001\
         \\nTime:2024-02-03T04:05:06.1200000Z\"}}}"
    );
    assert_eq!(read_json(&json(&fault), 409), Some(fault));
}

#[test]
fn operations_of_a_batch_have_their_index_in_front() {
    let fault = Fault::from(Code::TableNotFound).at_index(0);
    assert!(
        json(&fault).contains("\"value\":\"0:The table specified does not exist.\\nRequestId:")
    );
    assert_eq!(read_json(&json(&fault), 404), Some(fault));
    let text = "{\"odata.error\":{\"code\":\"X\",\"message\":{\"value\":\":a: 5:b\"}}}";
    let fault = read_json(text, 400).unwrap();
    assert_eq!((fault.index, fault.message.as_str()), (None, ":a: 5:b"));
}

#[test]
fn the_xml_shape() {
    let fault = Fault::header("x-ms-version", "<1>");
    assert_eq!(
        xml(&fault),
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>InvalidHeaderValue</Code><Message>The value for \
         one of the HTTP headers is not in the correct format.\nRequestId:7c3f0000-0000-0000-0000-000000000001\n\
         Time:2024-02-03T04:05:06.1200000Z</Message><HeaderName>x-ms-version</HeaderName>\
         <HeaderValue>&lt;1&gt;</HeaderValue></Error>"
    );
    assert_eq!(read_xml(&xml(&fault), 400), Some(fault));
}

#[test]
fn every_code_is_read_back_from_json_and_xml() {
    for known in Known::ALL {
        let fault = Fault::from(*known);
        assert!((400..500).contains(&fault.status), "{known:?}");
        assert_eq!(read_json(&json(&fault), fault.status).as_ref(), Some(&fault));
        assert_eq!(read_xml(&xml(&fault), fault.status).as_ref(), Some(&fault));
    }
    for fault in [
        Fault::parameter("sig", "a b&c", "no Base64"),
        Fault::no_header("Origin"),
        Fault::unauthenticated("it is late\nand dark"),
        Fault::query_syntax().at_index(7),
    ] {
        assert_eq!(read_xml(&xml(&fault), fault.status).as_ref(), Some(&fault));
    }
}

#[test]
fn the_front_end_answers_with_a_page() {
    let fault = Fault::invalid_url();
    let mut out = Vec::new();
    fault.put_html(&mut out);
    let page = String::from_utf8(out).unwrap();
    assert!(fault.is_html() && !Fault::query_syntax().is_html());
    assert!(page.starts_with("<!DOCTYPE HTML") && page.contains("Bad Request - Invalid URL"));
}

#[test]
fn errors_of_the_engine_are_reported_without_detail() {
    let error = Error::new(ErrorKind::Io, "write /home/anna/db/000004.wal");
    let fault = Fault::from(error);
    assert_eq!((&*fault.code, fault.status), ("InternalError", 500));
    assert_eq!(fault.message, Code::InternalError.message());
    let fault = Fault::from(Error::new(ErrorKind::Busy, "others keep writing"));
    assert_eq!((&*fault.code, fault.status), ("ServerBusy", 503));
    assert_eq!(fault.message, Code::ServerBusy.message());
    let limit = "Operations per second is over the account limit.";
    let fault = Fault::from(Error::refused_with(Code::ServerBusy, limit));
    assert_eq!(fault.message, limit);
    let error = Error::refused_with(Code::InvalidInput, "Syntax error at position 3 in 'A eq'.");
    let fault = Fault::from(error.at_index(2));
    assert_eq!((&*fault.code, fault.status, fault.index), ("InvalidInput", 400, Some(2)));
    assert_eq!(fault.message, "Syntax error at position 3 in 'A eq'.");
    let fault = Fault::from(Error::refused(Code::NotImplemented));
    assert_eq!(fault.message, Code::NotImplemented.message());
}

#[test]
fn other_texts_are_not_parsed_as_errors() {
    for text in [
        "",
        "{}",
        "[]",
        "{\"odata.error\":5}",
        "{\"odata.error\":{\"code\":\"X\"}}",
        "{\"odata.error\":{\"code\":5,\"message\":{\"value\":\"x\"}}}",
        "{\"odata.error\":{\"code\":\"X\",\"message\":\"x\"}}",
    ] {
        assert_eq!(read_json(text, 400), None, "{text}");
    }
    for text in ["", "<Error/>", "<Error><Code>X</Code></Error>", "<E><Code>X</Code><Message/></E>"]
    {
        assert_eq!(read_xml(text, 400), None, "{text}");
    }
    let fault = Fault::from(Code::TableNotFound);
    let (json, xml) = (json(&fault), xml(&fault));
    for end in 0..json.len() {
        assert_eq!(read_json(&json[..end], 404), None);
    }
    for end in 0..xml.len() {
        assert_eq!(read_xml(&xml[..end], 404), None);
    }
}
