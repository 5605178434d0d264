//! Tests reads of entities: queries, single reads, projection, options, pages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::model::Entity;
use crate::rest::protocol::paging;
use crate::table::EntityGroup;

const NO_METADATA: &str = "application/json;odata=nometadata";

/// A clock that advances by one second with each reading.
#[derive(Debug, Default)]
struct HastyClock {
    looks: AtomicU64,
}

impl Clock for HastyClock {
    fn now(&self) -> u64 {
        ticks(NOW)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.looks.fetch_add(1, Ordering::Relaxed))
    }
}

/// The RowKeys of all pages of a query, the number of entities per page, and the tokens received.
struct Pages {
    rows: Vec<String>,
    sizes: Vec<usize>,
    tokens: Vec<[String; 2]>,
}

impl Site {
    /// Inserts entities without properties into `people`, in as few commits as possible.
    fn fill(&self, pk: &str, rows: std::ops::Range<usize>) {
        let table = self.account().db.table("people").unwrap();
        for chunk in rows.collect::<Vec<_>>().chunks(100) {
            let mut group = EntityGroup::new(pk);
            for row in chunk {
                group.insert(Entity::new(pk, format!("{row:05}"))).unwrap();
            }
            table.commit(group).unwrap();
        }
    }

    /// Runs a query and follows its continuation tokens, for at most `limit` pages.
    fn pages(&self, parameters: &[(&str, &str)], limit: usize) -> Pages {
        let mut all = Pages { rows: Vec::new(), sizes: Vec::new(), tokens: Vec::new() };
        for _ in 0..limit {
            let mut parameters = parameters.to_vec();
            if let Some([pk, rk]) = all.tokens.last() {
                parameters.extend([("NextPartitionKey", &**pk), ("NextRowKey", &**rk)]);
            }
            let got = self.get_with("people()", &parameters).accept(NO_METADATA).send().done(200);
            let rows = got.values("RowKey");
            all.sizes.push(rows.len());
            all.rows.extend(rows.iter().map(|row| (*row).to_owned()));
            let token = |name| got.header(name).map(str::to_owned);
            let next = [
                token("x-ms-continuation-NextPartitionKey"),
                token("x-ms-continuation-NextRowKey"),
            ];
            match next {
                [Some(pk), Some(rk)] => all.tokens.push([pk, rk]),
                [None, None] => return all,
                _ => panic!("only one of the two token headers"),
            }
        }
        panic!("more than {limit} pages");
    }
}

#[test]
fn f17_query_entities() {
    let site = Site::people();
    site.get("people()")
        .send()
        .json(200, &format!("{{\"odata.metadata\":\"{BASE}$metadata#people\",\"value\":[]}}"));
    for (pk, rk) in [("b", "2"), ("a", "1"), ("b", "1")] {
        site.insert(pk, rk, "\"Age\":5");
    }
    for address in ["people()", "people", "PEOPLE()"] {
        let got = site.get(address).send().done(200);
        assert_eq!(got.values("PartitionKey"), ["a", "b", "b"]);
        assert_eq!(got.values("RowKey"), ["1", "1", "2"]);
        assert_eq!(got.values("odata.etag").len(), 3);
        assert_eq!((got.header("ETag"), got.header("Content-Type")), (None, Some(MINIMAL)));
    }
    // If both keys are in a filter and not in the address, the response is a list.
    let got = site.filter("PartitionKey eq 'a' and RowKey eq '9'").send().done(200);
    assert!(got.body.ends_with("\"value\":[]}"));
    assert_eq!(site.rows("PartitionKey eq 'a' and RowKey eq '1'"), "1");
    let text = "The table specified does not exist.";
    site.get("nobody()").send().refused(404, "TableNotFound", text);
    site.get_with("nobody()", &[("$filter", "Age gt 5")]).send().refused(
        404,
        "TableNotFound",
        text,
    );
    for option in
        ["$orderby=Age", "$skip=1", "$count=true", "$expand=x", "$inlinecount=allpages", "$Top=1"]
    {
        let text = "The requested operation is not implemented on the specified resource.";
        let got = site.get(&format!("people()?{option}")).send();
        got.refused(501, "NotImplemented", text);
    }
    // Unknown parameters without a dollar sign are ignored.
    site.get("people()?color=red").send().done(200);
    site.get("people()?$top=1&$top=1").send().fails(400, "InvalidInput");
}

#[test]
fn f17_query_entities_with_plus_signs() {
    let site = Site::people();
    site.insert("p", "a b", "");
    site.insert("p", "a+b", "");
    let rows = |query: &str| {
        let got =
            site.get(&format!("people()?$filter={query}")).accept(NO_METADATA).send().done(200);
        got.values("RowKey").join(" ")
    };
    assert_eq!(rows("RowKey+eq+'a+b'"), "a b");
    assert_eq!(rows("RowKey%20eq%20'a%2Bb'"), "a+b");
    assert_eq!(rows("RowKey%20eq%20%27a%20b%27"), "a b");
    site.get("people()?$filter=RowKey%2").send().fails(400, "InvalidInput");
}

#[test]
fn f18_get_entity() {
    let site = Site::people();
    site.insert("p", "r", "\"Age\":5,\"Name\":\"Ann\"");
    let etag = "\"odata.etag\":\"W/\\\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\\\"\"";
    let got = site.get(&person("r")).send().json(
        200,
        &format!(
            "{{\"odata.metadata\":\"{BASE}$metadata#people/@Element\",{etag},\"PartitionKey\":\"p\",\
             \"RowKey\":\"r\",\"Timestamp\":\"2024-02-03T04:05:06.1234567Z\",\"Age\":5,\"Name\":\"Ann\"}}"
        ),
    );
    assert_eq!((got.etag(), got.header("Content-Type")), (NOW_ETAG, Some(MINIMAL)));
    assert_eq!(got.header("Cache-Control"), Some("no-cache"));
    let text = "The specified resource does not exist.";
    site.get(&person("none")).send().refused(404, "ResourceNotFound", text);
    let text = "The table specified does not exist.";
    let nobody = site.get("nobody(PartitionKey='p',RowKey='r')").send();
    nobody.refused(404, "TableNotFound", text);
}

#[test]
fn f18_get_entity_with_projection() {
    let site = Site::people();
    site.insert("p", "r", "\"Age\":5,\"Name\":\"Ann\"");
    let etag = "\"odata.etag\":\"W/\\\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\\\"\"";
    let select = |names: &str| site.get(&format!("{}?$select={names}", person("r")));
    let got = select("Age,City").send().json(
        200,
        &format!(
            "{{\"odata.metadata\":\"{BASE}$metadata#people/@Element&$select=Age,City\",{etag},\
             \"Age\":5,\"City\":null}}"
        ),
    );
    assert_eq!(got.etag(), NOW_ETAG);
    select("RowKey,Timestamp")
        .accept(NO_METADATA)
        .send()
        .json(200, r#"{"RowKey":"r","Timestamp":"2024-02-03T04:05:06.1234567Z"}"#);
    let whole = site.get(&person("r")).send();
    for all in ["", "*", "Age,*"] {
        assert_eq!(select(all).send().done(200).body, whole.body, "{all}");
    }
    site.get(&format!("{}?$select=Age", person("none"))).send().fails(404, "ResourceNotFound");
}

#[test]
fn f26_select_fills_with_nulls() {
    let site = Site::people();
    site.insert("p", "1", "\"Age\":5,\"Name\":\"Ann\"");
    site.at("2024-02-03T04:05:07Z").insert(
        "p",
        "2",
        "\"Name\":\"Bob\",\"N@odata.type\":\"Edm.Int64\",\"N\":\"7\"",
    );
    let select = |names: &str| site.get_with("people()", &[("$select", names)]);
    let first = "\"odata.etag\":\"W/\\\"datetime'2024-02-03T04%3A05%3A06.1234567Z'\\\"\"";
    let second = "\"odata.etag\":\"W/\\\"datetime'2024-02-03T04%3A05%3A07Z'\\\"\"";
    select("Name , Age").send().json(
        200,
        &format!(
            "{{\"odata.metadata\":\"{BASE}$metadata#people&$select=Name,Age\",\"value\":[\
             {{{first},\"Name\":\"Ann\",\"Age\":5}},{{{second},\"Name\":\"Bob\",\"Age\":null}}]}}"
        ),
    );
    select("Age").accept(NO_METADATA).send().json(200, r#"{"value":[{"Age":5},{"Age":null}]}"#);
    select("RowKey,N,name").send().json(
        200,
        &format!(
            "{{\"odata.metadata\":\"{BASE}$metadata#people&$select=RowKey,N,name\",\"value\":[\
             {{{first},\"RowKey\":\"1\",\"N\":null,\"name\":null}},\
             {{{second},\"RowKey\":\"2\",\"N@odata.type\":\"Edm.Int64\",\"N\":\"7\",\"name\":null}}]}}"
        ),
    );
    let whole = site.get("people()").send().body;
    for all in ["", " ", "*"] {
        assert_eq!(select(all).send().done(200).body, whole);
    }
    let names = |count: usize| (0..count).map(|i| format!("P{i}")).collect::<Vec<_>>().join(",");
    select(&names(255)).send().done(200);
    for names in [&*names(256), ",", "Age,", "Age,,Name"] {
        select(names).send().fails(400, "InvalidInput");
    }
}

#[test]
fn f26_top_is_from_0_to_1000() {
    let site = Site::people();
    site.fill("p", 0..5);
    let top = |top: &str| site.get(&format!("people()?$top={top}")).accept(NO_METADATA).send();
    for (count, rows) in [("1", 1), ("4", 4), ("5", 5), ("1000", 5)] {
        let got = top(count).done(200);
        assert_eq!(got.values("RowKey").len(), rows);
        let token = got.header("x-ms-continuation-NextRowKey");
        assert_eq!(token.is_some(), rows < 5, "{count}");
    }
    let got = top("0").json(200, "{\"value\":[]}");
    assert_eq!(got.header("x-ms-continuation-NextPartitionKey"), None);
    for count in ["-1", "1001", "ten", "1.0", "", "%2B1", "99999999999999999999"] {
        top(count).refused(400, "InvalidInput", "One of the request inputs is not valid.");
    }
}

#[test]
fn f26_format_wins_over_accept() {
    let site = Site::people();
    for (format, level) in [
        ("json", "minimalmetadata"),
        ("application/json", "minimalmetadata"),
        ("application/json;odata=nometadata", "nometadata"),
        ("application/json;odata=fullmetadata", "fullmetadata"),
    ] {
        for accept in ["application/json;odata=nometadata", "application/atom+xml"] {
            let ask = site.get_with("people()", &[("$format", format)]).accept(accept);
            let media = format!("application/json;odata={level};streaming=true;charset=utf-8");
            assert_eq!(ask.send().done(200).header("Content-Type"), Some(&*media));
        }
    }
    for (format, code) in [
        ("atom", "AtomFormatNotSupported"),
        ("application/atom+xml", "AtomFormatNotSupported"),
        ("verbosejson", "JsonVerboseFormatNotSupported"),
        ("application/json;odata=verbose", "JsonVerboseFormatNotSupported"),
        ("xml", "MediaTypeNotSupported"),
    ] {
        site.get_with("people()", &[("$format", format)]).send().fails(415, code);
    }
}

#[test]
fn f28_pages_of_1000() {
    let site = Site::people();
    site.fill("p", 0..2001);
    let all = site.pages(&[], 9);
    assert_eq!(all.sizes, [1000, 1000, 1]);
    let expected: Vec<_> = (0..2001).map(|row| format!("{row:05}")).collect();
    assert_eq!(all.rows, expected);
    // A token names the first entity that was not returned.
    assert_eq!(all.tokens[0], ["1!4!cA--", &*paging::encode("01000")]);
    // A page that contains the last entity has no token, even if the page is full.
    let exact = site.pages(&[("$filter", "RowKey lt '01000'")], 9);
    assert_eq!(exact.sizes, [1000]);
}

#[test]
fn f28_pages_of_top() {
    let site = Site::people();
    site.fill("a", 0..3);
    site.fill("b", 3..5);
    let all = site.pages(&[("$top", "2"), ("$select", "RowKey")], 9);
    assert_eq!(
        (all.rows.join(" ").as_str(), &all.sizes[..]),
        ("00000 00001 00002 00003 00004", &[2, 2, 1][..])
    );
    // The token skips entities that do not match and names the next matching one.
    let odd = "RowKey eq '00000' or RowKey eq '00003' or RowKey eq '00004'";
    let all = site.pages(&[("$top", "1"), ("$filter", odd)], 9);
    assert_eq!(all.rows.join(" "), "00000 00003 00004");
    assert_eq!(all.tokens[0], [paging::encode("b"), paging::encode("00003")]);
    // A point query has no second page.
    let point =
        site.pages(&[("$top", "1"), ("$filter", "PartitionKey eq 'a' and RowKey eq '00000'")], 9);
    assert_eq!((point.sizes, point.tokens.len()), (vec![1], 0));
}

#[test]
fn f28_pages_ended_by_the_time_limit_may_be_empty() {
    let clock = Arc::new(ManualClock::new(ticks(NOW)));
    let site = Site::with(clock, Arc::new(HastyClock::default()));
    site.post("Tables", r#"{"TableName":"people"}"#).send().done(201);
    site.fill("p", 0..30_000);
    let filter = [("$filter", "RowKey ge '29990' or Color eq 'none'"), ("timeout", "2")];
    let all = site.pages(&filter, 1000);
    assert_eq!(all.rows.len(), 10);
    assert_eq!(all.sizes.first(), Some(&0), "{:?}", all.sizes);
    assert!(all.tokens.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", all.tokens);
}

#[test]
fn f28_pages_continue_during_writes() {
    let site = Site::people();
    site.fill("p", 0..6);
    let next = |got: &Got| {
        let token = |name| got.header(name).unwrap().to_owned();
        let (pk, rk) =
            (token("x-ms-continuation-NextPartitionKey"), token("x-ms-continuation-NextRowKey"));
        format!("people()?$top=2&NextPartitionKey={pk}&NextRowKey={rk}")
    };
    let got = site.get("people()?$top=2").accept(NO_METADATA).send().done(200);
    // Between two pages, the entity that the token names is deleted, and others are inserted before
    // and after it.
    site.delete(&person("00002")).matching("*").send().empty(204);
    site.insert("p", "00000x", "");
    site.insert("p", "00002x", "");
    let second = site.get(&next(&got)).accept(NO_METADATA).send().done(200);
    assert_eq!(second.values("RowKey"), ["00002x", "00003"]);
    // A token never expires.
    site.at("2034-01-01T00:00:00Z");
    let again = site.get(&next(&got)).accept(NO_METADATA).send().done(200);
    assert_eq!(again.body, second.body);
}

#[test]
fn f28_tokens() {
    let site = Site::people();
    for (pk, rk) in [("Smith", "a"), ("ab", "~~~"), ("é", "é"), ("", "")] {
        site.insert(pk, rk, "");
    }
    let rows = |query: &str| {
        let got = site.get(&format!("people()?{query}")).accept(NO_METADATA).send().done(200);
        got.values("PartitionKey").join(" ")
    };
    assert_eq!(rows(""), " Smith ab é");
    assert_eq!(rows("NextPartitionKey=1!8!U21pdGg-&NextRowKey=1!4!YQ--"), "Smith ab é");
    assert_eq!(rows("NextPartitionKey=1!8!U21pdGg-&NextRowKey=1!4!YWI-"), "ab é");
    assert_eq!(rows("NextPartitionKey=1%214%21YWI-&NextRowKey=1!4!fn5*"), "ab é");
    // A token may lack a RowKey; some clients then send an empty one.
    assert_eq!(rows("NextPartitionKey=1!4!YWI-"), "ab é");
    assert_eq!(rows("NextPartitionKey=1!4!YWI-&NextRowKey="), "ab é");
    assert_eq!(rows("NextPartitionKey=1!0!&NextRowKey=1!0!"), " Smith ab é");
    for query in [
        "NextPartitionKey=Smith",
        "NextPartitionKey=1!8!U21pdGg-&NextRowKey=a",
        "NextPartitionKey=",
        "NextRowKey=1!4!YQ--",
        "NextPartitionKey=1!9!U21pdGg-",
        "NextPartitionKey=U21pdGg=",
    ] {
        let got = site.get(&format!("people()?{query}")).send();
        got.refused(400, "InvalidInput", "One of the request inputs is not valid.");
    }
}

#[test]
fn the_heat_of_a_table_is_kept_for_a_day() {
    let site = Site::people();
    site.post("Tables", r#"{"TableName":"idle"}"#).send().done(201);
    let db = &site.account().db;
    for table in ["people", "idle"] {
        db.table(table).unwrap().insert(Entity::new("p", "r")).unwrap();
    }
    db.flush().unwrap();
    let heat = |table: &str| site.get(&format!("$rowstone/heat/{table}")).send().done(200).body;
    site.clock.advance(Duration::from_secs(3_600));
    for _ in 0..3 {
        for _ in 0..600 {
            db.table("people").unwrap().get("p", "r").unwrap().unwrap();
            site.clock.advance(Duration::from_millis(100));
        }
        site.service.record_heat();
    }
    let people = heat("People");
    assert!(people.starts_with(r#"[{"ago":120,"lows":[""],"heats":["#), "{people}");
    let (ages, lows) = (people.matches("\"ago\":"), people.matches("\"lows\":"));
    assert_eq!((ages.count(), lows.count()), (3, 1), "{people}");
    assert_eq!(heat("idle"), "[]");
    site.clock.advance(Duration::from_secs(86_400));
    site.service.record_heat();
    assert_eq!(heat("people").matches("\"ago\":").count(), 1, "the last sample is one day old");
    site.clock.advance(Duration::from_secs(1));
    site.service.record_heat();
    assert_eq!(heat("people"), "[]");
    site.get("$rowstone/heat/none").send().fails(404, "TableNotFound");
    site.get("$rowstone/heat/people").unsigned().send().fails(403, "AuthenticationFailed");
}
