//! Tests `serve --behave` over sockets: lost and cut answers, the log, and malformed rules.

use rowstone::store::{Misbehaving, PageQuery, Remote, RemoteOptions, TableStore};
use rowstone::{Db, Entity, Error, ErrorKind, RetryPolicy};

use super::client::{Client, connect};
use super::{Place, Server};

const ANN: &str = r#"{"PartitionKey":"p","RowKey":"ann"}"#;
const JSON: &str = "Content-Type: application/json\r\n";
const GET_ANN: &str = "/people(PartitionKey='p',RowKey='ann')";

fn served(rules: &str) -> (Place, Server) {
    let place = Place::new();
    place.write("rules.json", rules);
    let server = place.serve("--behave rules.json --seed 1 --metrics 127.0.0.1:0").with_table();
    (place, server)
}

#[test]
fn a_lost_answer_closes_the_connection_after_the_effect() {
    let (_place, server) = served(r#"[{"do":"lost","operations":["insert"],"name":"gone"}]"#);
    let mut client = server.client();
    client.send(server.key.request("POST", "/people", JSON, ANN.as_bytes()));
    client.is_closed();
    server.ask("GET", GET_ANN, "").is(200);
    let lines = server.stop();
    assert!(lines.iter().any(|line| line.contains("rules.json, seed 1")), "{lines:?}");
    let logged = lines.iter().find(|line| line.contains("\"POST\"") && line.contains("people"));
    assert!(logged.unwrap().contains("\"misbehaved\":\"gone\""), "{lines:?}");
    let others = lines.iter().filter(|line| line.contains("misbehaved")).count();
    assert_eq!(others, 1, "{lines:?}");
}

#[test]
fn a_cut_answer_ends_in_its_body() {
    let (_place, server) = served(r#"[{"do":"cut","operations":["get","commit"]}]"#);
    server.ask("POST", "/people", ANN).is(201);
    let cut = |request: Vec<u8>| {
        let mut client = server.client();
        client.send(request);
        String::from_utf8(client.rest()).unwrap()
    };
    let key = &server.key;
    let got = cut(key.request("GET", GET_ANN, "", b""));
    assert!(got.starts_with("HTTP/1.1 200 ") && got.contains("\r\n\r\n"), "{got}");
    assert!(!got.ends_with("\r\n0\r\n\r\n"), "{got}");
    let operation = "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n\
         --c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
         POST /devstoreaccount1/people HTTP/1.1\r\nContent-Type: application/json\r\n\r\n\
         {\"PartitionKey\":\"p\",\"RowKey\":\"bob\"}\r\n--c--\r\n--b--\r\n";
    let kind = "Content-Type: multipart/mixed; boundary=b\r\n";
    let got = cut(key.request("POST", "/$batch", kind, operation.as_bytes()));
    assert!(got.starts_with("HTTP/1.1 202 "), "{got}");
    assert!(!got.contains("--\r\n\r\n0\r\n\r\n"), "{got}");
    let all = server.ask("GET", "/people()", "");
    assert!(all.is(200).text().contains("bob"), "the group was committed");
}

#[test]
fn delays_and_profiles_are_served_and_counted() {
    let (_place, server) = served(r#"[{"do":"delay","ms":1,"operations":["insert"]}]"#);
    server.ask("POST", "/people", ANN).is(201);
    let mut scrape = Client::over(connect(server.metrics.unwrap()).unwrap(), server.key.clone());
    scrape.send("GET /metrics HTTP/1.1\r\n\r\n");
    let metrics = scrape.answer();
    assert!(
        metrics.text().contains("rowstone_misbehaved_total{rule=\"delay 1\",action=\"delay\"} 1")
    );
    let place = Place::new();
    let lines = place.serve("--behave throttled-2010").with_table().stop();
    assert!(lines.iter().any(|line| line.contains("on purpose")), "{lines:?}");
}

#[test]
fn malformed_rules_are_refused_with_the_rule_and_the_field() {
    let place = Place::new();
    place.write("rules.json", r#"[{"do":"busy"},{"do":"lost","often":1}]"#);
    for (options, problem) in [
        ("--behave rules.json", "rules.json: rule 2 (lost): \"often\" is not a field"),
        ("--behave none.json", "cannot read none.json"),
        ("--seed 1", "--behave"),
    ] {
        let (status, output) = place.refused(options);
        assert_eq!(status, Some(2), "{output}");
        assert!(output.contains(problem), "{output}");
    }
    assert!(!place.path("db").exists());
}

#[test]
fn a_service_and_a_store_in_the_process_decide_alike() {
    let rules = r#"[{"do":"busy","percent":50,"operations":["query","tables"]},
                    {"do":"empty_page","percent":20},{"do":"short_page","entities":2}]"#;
    let (_place, server) = served(rules);
    let options = RemoteOptions::new().retries(RetryPolicy::none());
    let remote = Remote::open_with(&server.connection(), options).unwrap();
    let store = Misbehaving::new(Db::open_in_memory().unwrap(), rules, 1).unwrap();
    let outcomes = |store: &dyn TableStore| {
        drop(store.create_table("people"));
        for row in 0..20 {
            store.insert("people", &Entity::new("p", row.to_string())).unwrap();
        }
        let listed = [(); 10].map(|()| store.tables().is_ok());
        let (mut sizes, mut next) = (Vec::new(), None);
        loop {
            let filter = "PartitionKey eq 'p'";
            let page = PageQuery { filter, continuation: next.as_ref(), ..PageQuery::default() };
            let found = store.query("people", &page);
            sizes.push(found.as_ref().map_err(Error::kind).map(|found| found.entities.len()));
            let Ok(found) = found else { continue };
            next = found.next;
            if next.is_none() {
                break (listed, sizes);
            }
        }
    };
    let decided = outcomes(&store);
    assert_eq!(outcomes(&remote), decided);
    for size in [Err(ErrorKind::Busy), Ok(0), Ok(2)] {
        assert!(decided.1.contains(&size), "{decided:?}");
    }
}
