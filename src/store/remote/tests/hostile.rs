//! Servers that stall, cut, lie or repeat credentials, each over a socket of this machine.
#![expect(
    clippy::disallowed_methods,
    reason = "certificates are the user's files, and a server is a thread"
)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::db::{Commit, Db};
use crate::error::{Error, ErrorKind, Result};
use crate::json;
use crate::json::changes::put_commit;
use crate::model::Entity;
use crate::retry::RetryPolicy;
use crate::store::open_store;
use crate::store::remote::feed::RemoteChanges;
use crate::store::remote::{Remote, RemoteOptions};
use crate::store::table_store::{PageQuery, TableStore};
use crate::sync::Mutex;
use crate::table::EntityGroup;

const KEY: &str = "c2VjcmV0IG9uZQ==";

/// Reads a request with its body. Returns its head, and `None` at the end of the connection.
fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let lower = head.to_ascii_lowercase();
    let length = lower.split_once("content-length: ").map_or("0", |(_, rest)| rest);
    let length: usize = length.lines().next().unwrap().parse().unwrap();
    stream.read_exact(&mut vec![0; length]).ok()?;
    Some(head)
}

/// Options without retries; `timeout` is short only for a server that does not answer.
fn options() -> RemoteOptions {
    RemoteOptions::new().retries(RetryPolicy::none())
}

/// Runs `client` against a server that gives `answer` to the head of each request, and then ends
/// the connection, unless `keeps` it until the client does.
fn serve<T>(
    answer: impl Fn(&str, &mut dyn Write) + Send,
    keeps: bool,
    credential: &str,
    options: RemoteOptions,
    client: impl FnOnce(&Remote) -> T,
) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let text = format!("AccountName=acme;{credential};TableEndpoint=http://{at}/acme");
    thread::scope(|scope| {
        scope.spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let Some(head) = read_request(&mut stream) else { return };
                answer(&head, &mut stream);
                if keeps {
                    let _ = stream.read(&mut [0]);
                }
            }
        });
        let remote = Remote::open_with(&text, options).unwrap();
        let result = client(&remote);
        // A connection without a request ends the server.
        drop(std::net::TcpStream::connect(at).unwrap());
        result
    })
}

/// Returns the errors of a read, a page, a write, a group and a list for an answer.
fn errors(answer: impl Fn(&str, &mut dyn Write) + Send, credential: &str) -> Vec<Error> {
    serve(answer, false, credential, options(), |remote| {
        let entity = Entity::new("p", "r").with("Price", 1);
        let mut group = EntityGroup::new("p");
        group.insert(entity.clone()).unwrap();
        let one = PageQuery { top: 1, ..PageQuery::default() };
        vec![
            remote.get("parts", "p", "r", &[]).unwrap_err(),
            remote.query("parts", &one).unwrap_err(),
            remote.insert("parts", &entity).unwrap_err(),
            remote.commit("parts", &group).unwrap_err(),
            remote.tables().unwrap_err(),
        ]
    })
}

#[test]
fn answers_that_break_the_protocol_are_errors_of_their_own() {
    use ErrorKind::{Io, OutcomeUnknown};
    let mixed = "HTTP/1.1 202 Accepted\r\nContent-Type: multipart/mixed; boundary=b\r\n";
    let long = "HTTP/1.1 200 OK\r\nContent-Length: ";
    let other = r#"{"odata.etag":"W/\"1\"","PartitionKey":"q","RowKey":"r"}"#;
    let cases = [
        (String::new(), "cut"),
        ("HTTP/1.1 200 OK\r\nContent-".to_owned(), "cut in the head"),
        (format!("{long}100\r\n\r\n{{\"value\":[]}}"), "shorter than it says"),
        (format!("{long}-5\r\n\r\n"), "negative length"),
        (format!("{long}2\r\n\r\n{{}}"), "no value"),
        (format!("{long}4\r\n\r\n[[[["), "malformed JSON"),
        (format!("{long}1\r\n\r\n\u{1}"), "no JSON"),
        (format!("{mixed}Content-Length: 4\r\n\r\n--b-"), "malformed multipart"),
        (format!("{mixed}Content-Length: 6\r\n\r\n--b--\n"), "no part"),
        (format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000)), "long header"),
        ("SSH-2.0-x\r\n\r\n".to_owned(), "another protocol"),
        (format!("{long}{}\r\n\r\n{other}", other.len()), "another entity"),
    ];
    for (answer, case) in cases {
        let send = |_: &str, stream: &mut dyn Write| drop(stream.write_all(answer.as_bytes()));
        let found = errors(send, &format!("AccountKey={KEY}"));
        let kinds: Vec<ErrorKind> = found.iter().map(Error::kind).collect();
        assert_eq!(kinds, [Io, Io, OutcomeUnknown, OutcomeUnknown, Io], "{case}: {found:?}");
        assert!(found.iter().all(|error| error.to_string().contains("127.0.0.1")), "{found:?}");
    }
    let away = "HTTP/1.1 307 Away\r\nConnection: close\r\nLocation: /\r\nContent-Length: 0\r\n\r\n";
    let send = |_: &str, stream: &mut dyn Write| drop(stream.write_all(away.as_bytes()));
    for error in errors(send, &format!("AccountKey={KEY}")) {
        assert_eq!(error.kind(), Io);
        assert!(error.to_string().contains("redirects"), "{error}");
    }
}

/// A page without a position would be taken for the last one.
#[test]
fn a_malformed_position_of_a_page_is_an_error() {
    let value = "\u{e9}";
    for (headers, is_page, is_list) in [
        (format!("x-other: {value}\r\n"), true, true),
        (format!("x-ms-continuation-NextPartitionKey: {value}\r\n"), false, true),
        ("x-ms-continuation-NextRowKey: r\r\n".to_owned(), false, true),
        (format!("x-ms-continuation-NextTableName: {value}\r\n"), true, false),
    ] {
        let close = "Connection: close\r\nContent-Length: 12\r\n";
        let answer = format!("HTTP/1.1 200 OK\r\n{close}{headers}\r\n{{\"value\":[]}}");
        let send = |_: &str, stream: &mut dyn Write| drop(stream.write_all(answer.as_bytes()));
        let key = format!("AccountKey={KEY}");
        let (page, list) = serve(send, false, &key, options(), |remote| {
            (remote.query("parts", &PageQuery::default()).map(drop), remote.tables().map(drop))
        });
        for (found, is_expected) in [(page, is_page), (list, is_list)] {
            assert_eq!(found.is_ok(), is_expected, "{headers}: {found:?}");
        }
    }
}

#[test]
fn a_list_of_tables_that_repeats_is_an_error() {
    let send = |head: &str, stream: &mut dyn Write| {
        let next = if head.contains("NextTableName=a") { "b" } else { "a" };
        let next = format!("x-ms-continuation-NextTableName: {next}");
        let start = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 12\r\n";
        drop(stream.write_all(format!("{start}{next}\r\n\r\n{{\"value\":[]}}").as_bytes()));
    };
    let key = format!("AccountKey={KEY}");
    let error = serve(send, false, &key, options(), |remote| remote.tables().unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("repeats a page of tables"), "{error}");
}

#[test]
fn a_body_of_1_gib_is_not_read_and_a_server_that_stalls_is_left() {
    let huge = |_: &str, stream: &mut dyn Write| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n";
        let mut sent = stream.write_all(head.as_bytes());
        while sent.is_ok() {
            sent = stream.write_all(&[b' '; 65_536]);
        }
    };
    let get = |remote: &Remote| remote.get("parts", "p", "r", &[]).unwrap_err();
    let key = format!("AccountKey={KEY}");
    let error = serve(huge, false, &key, options(), get);
    assert!(error.to_string().contains("longer than 16777216 bytes"), "{error}");
    let short = options().timeout(Duration::from_millis(100));
    let error = serve(|_, _| (), true, &key, short, get);
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("the time for the request is over"), "{error}");
}

#[test]
fn no_error_and_no_debug_text_shows_a_credential() {
    // The server repeats the address and all headers of each request.
    type Shape = fn(&str) -> String;
    let shapes: [Shape; 4] = [
        |text| {
            format!(
                "{{\"odata.error\":{{\"code\":\"{text}\",\"message\":{{\"value\":\"{text}\"}}}}}}"
            )
        },
        |text| {
            format!(
                "{{\"odata.error\":{{\"code\":\"InvalidInput\",\"message\":{{\"value\":\"{text}\"}}}}}}"
            )
        },
        |text| {
            format!("<Error><Code>A</Code><Message>{}</Message></Error>", text.replace('&', " "))
        },
        str::to_owned,
    ];
    let sas = "sv=2019-02-02&tn=parts&sp=raud&sig=c2lnbmF0dXJlK29m%2FeA%3D%3D";
    let secrets = [KEY, "sig=", "c2lnbmF0dXJlK29m", "SharedKey", "secret one"];
    for shape in shapes {
        for status in [400, 403, 404, 409, 500] {
            for credential in [format!("AccountKey={KEY}"), format!("SharedAccessSignature={sas}")]
            {
                let echo = |head: &str, stream: &mut dyn Write| {
                    let body = shape(&head.replace("\r\n", " ").replace('"', "'"));
                    let length = body.len();
                    let code = head.lines().next().unwrap();
                    let start = format!("HTTP/1.1 {status} No\r\nContent-Length: {length}\r\n");
                    let start = match length % 2 {
                        0 => start,
                        _ => format!("{start}x-ms-error-code: {code}\r\n"),
                    };
                    let _ = stream.write_all(format!("{start}\r\n{body}").as_bytes());
                };
                for error in errors(echo, &credential) {
                    let text = format!("{error} {error:?} {} {}", error.chain(), error.message());
                    let found = secrets.iter().find(|secret| text.contains(**secret));
                    assert_eq!(found, None, "{text}");
                }
            }
        }
    }
    let text = format!("AccountName=acme;SharedAccessSignature={sas}");
    let remote = Remote::open(&text).unwrap();
    assert_eq!(format!("{remote:?}"), "Remote(https://acme.table.core.windows.net)");
    let malformed = [
        format!("AccountName=acme;AccountKey={KEY}!"),
        format!("AccountName=acme;SharedAccessSignature={};x", &sas[..20]),
        format!("https://me:{KEY}@acme.example.com?{sas}"),
        format!("TableEndpoint=https://acme.example.com/?{sas};AccountKey={KEY}"),
        format!("http://acme.example.com?{sas}"),
        format!("ftp://acme.example.com?{sas}"),
        format!("file:AccountName=acme;AccountKey={KEY}"),
        format!("env:{sas}"),
    ];
    for text in malformed {
        let error = Remote::open(&text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let shown = format!("{error} {error:?}");
        assert!(!secrets.iter().any(|secret| shown.contains(secret)), "{shown}");
        assert!(open_store(&text).is_err(), "no directory is made of {text}");
    }
    assert!(Remote::open_with("http://a.example.com?sig=x", options().plain_http(true)).is_ok());
}

#[test]
fn a_file_with_a_connection_string_has_at_most_64_kib() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let name = format!("file:{}", path.display());
    let text = format!("AccountName=acme;AccountKey={KEY}");
    let write = |end: &str| std::fs::write(&path, text.clone() + end).unwrap();
    write(&" ".repeat((64 << 10) - text.len()));
    assert!(Remote::open(&name).is_ok());
    // The bound is in the middle of a character.
    for end in [" ".repeat((64 << 10) - text.len() + 1), "\u{e9}".repeat(64 << 10)] {
        write(&end);
        let error = Remote::open(&name).unwrap_err();
        let shown = error.to_string();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{shown}");
        assert!(shown.contains("store is longer than 64 KiB") && !shown.contains(KEY), "{shown}");
    }
    std::fs::write(&path, [0xff]).unwrap();
    assert!(Remote::open(&name).unwrap_err().to_string().contains("store is not UTF-8"));
    let missing = format!("file:{}", dir.path().join("none").display());
    assert_eq!(Remote::open(&missing).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn an_address_of_this_machine_without_a_server_is_explained() {
    let text = format!("AccountName=acme;AccountKey={KEY};TableEndpoint=http://127.0.0.1:1/acme");
    let error = Remote::open_with(&text, options()).unwrap().tables().unwrap_err().to_string();
    let said = "http://127.0.0.1:1/acme: connection refused; Azurite or `rowstone serve` must be";
    assert!(error.contains(said), "{error}");
}

/// The bodies have no code, and the signature is where an error cuts them, or at their beginning.
#[test]
fn no_error_shows_a_part_of_a_bare_signature() {
    for before in [0, 180, 480] {
        let seen = Mutex::new(String::new());
        let echo = |head: &str, stream: &mut dyn Write| {
            let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("authoriz"));
            let (_, signature) = line.unwrap().rsplit_once(':').unwrap();
            seen.lock().push_str(signature);
            let body = format!("{}{signature}", "x".repeat(before));
            let start = format!("HTTP/1.1 400 No\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{start}{body}").as_bytes());
        };
        let found = errors(echo, &format!("AccountKey={KEY}"));
        let seen = seen.lock();
        for error in found {
            let text = format!("{error:?} {}", error.chain());
            let mut parts = (0..seen.len() - 8).map(|at| &seen[at..at + 8]);
            assert!(!parts.any(|part| text.contains(part)), "{text}");
        }
    }
}

/// A proxy that leaves out the length of an answer may also cut it without a sign.
#[test]
fn a_page_of_changes_that_is_cut_anywhere_is_requested_again() {
    let db = Db::open_in_memory().unwrap();
    let since = db.position();
    let table = db.create_table("parts").unwrap();
    table.insert(Entity::new("p", "r")).unwrap();
    table.delete("p", "r").unwrap();
    let commits: Vec<_> = db.changes(since).unwrap().map(Result::unwrap).collect();
    let line = |commit: &Commit| {
        let changes: Vec<_> = commit.changes.iter().collect();
        json::object(|object| put_commit(object, commit, &changes)) + "\n"
    };
    let (body, end) = (commits.iter().map(line).collect::<String>(), db.position());
    let asked = AtomicUsize::new(0);
    let cut = |head: &str, stream: &mut dyn Write| {
        assert!(head.contains(&format!("since={since}&")), "{head}");
        let length = asked.fetch_add(1, Ordering::Relaxed);
        let start = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nx-rowstone-position: {end}\r\n\
             x-rowstone-commits: {}\r\n\r\n",
            commits.len()
        );
        let _ = stream.write_all(format!("{start}{}", &body[..length]).as_bytes());
    };
    serve(cut, false, &format!("AccountKey={KEY}"), options(), |remote| {
        let mut changes = RemoteChanges::new(remote.clone(), since);
        for _ in 0..body.len() {
            let error = changes.next().unwrap_err();
            assert!(
                error.kind() == ErrorKind::Io && error.message().contains("its end is missing")
            );
        }
        let read = || changes.next().unwrap().map(|commit| commit.position);
        let read: Vec<_> = std::iter::repeat_with(read).take(commits.len()).flatten().collect();
        assert_eq!(read, commits.iter().map(|commit| commit.position).collect::<Vec<_>>());
    });
}

#[test]
fn an_answer_of_an_extension_that_is_cut_anywhere_is_an_error() {
    let (at, length) = (Db::open_in_memory().unwrap().position(), AtomicUsize::new(0));
    let body = format!("{{\"oldest\":\"{at}\",\"newest\":\"{at}\"}}");
    let cut = |_: &str, stream: &mut dyn Write| {
        let length = length.fetch_add(1, Ordering::Relaxed);
        let start = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(format!("{start}{}", &body[..length]).as_bytes());
    };
    serve(cut, false, &format!("AccountKey={KEY}"), options(), |remote| {
        for _ in 0..body.len() {
            assert_eq!(remote.positions().unwrap_err().kind(), ErrorKind::Io);
        }
        assert_eq!(remote.positions().unwrap(), [at, at]);
    });
}

/// Runs `client` over TLS with a certificate that is valid until `year`. The server gives `answers`
/// in order; also returns the heads of the requests.
fn over_tls<T>(
    year: i32,
    answers: &[&str],
    trusts: bool,
    client: impl FnOnce(&Remote) -> Result<T>,
) -> (Result<T>, Vec<String>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let made = params.self_signed(&key).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, made.pem()).unwrap();
    let chain = vec![CertificateDer::from(made.der().to_vec())];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let text = format!("AccountName=acme;AccountKey={KEY};TableEndpoint=https://localhost:{port}");
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut heads = Vec::new();
            let (stream, _) = listener.accept().unwrap();
            let connection = ServerConnection::new(config).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            for answer in answers {
                let Some(head) = read_request(&mut stream) else { break };
                heads.push(head);
                stream.write_all(answer.as_bytes()).unwrap();
                stream.flush().unwrap();
            }
            heads
        });
        let options = options();
        let options = if trusts { options.ca(&ca) } else { options };
        let result = Remote::open_with(&text, options).and_then(|remote| client(&remote));
        (result, server.join().unwrap())
    })
}

#[test]
fn tls_with_an_own_authority_and_a_wrong_clock() {
    let date = "Fri, 01 Jan 2100 00:00:00 GMT";
    let skewed = format!("HTTP/1.1 403 No\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n");
    let page = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"value\":[]}";
    let (names, heads) = over_tls(2200, &[&skewed, page], true, TableStore::tables);
    assert_eq!(names.unwrap(), Vec::<String>::new());
    assert!(heads[1].contains("Fri, 01 Jan 2100 00:00"), "{}", heads[1]);

    let insert = |remote: &Remote| remote.insert("parts", &Entity::new("p", "r"));
    let (done, heads) = over_tls(2001, &[page], true, insert);
    let error = done.unwrap_err();
    assert_eq!((error.kind(), heads.len()), (ErrorKind::Io, 0));
    assert!(error.to_string().contains("check the clock"), "{error}");
    let (done, heads) = over_tls(2200, &[page], false, insert);
    let error = done.unwrap_err();
    assert_eq!((error.kind(), heads.len()), (ErrorKind::Io, 0));
    assert!(error.to_string().contains("certificate"), "{error}");
}

#[test]
fn a_malformed_file_of_certificates_is_refused_with_the_line() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    let open = |text: &str| {
        std::fs::write(&ca, text).unwrap();
        Remote::open_with("UseDevelopmentStorage=true", options().ca(&ca)).map(drop)
    };
    let full = |len: usize| format!("{pem}{}", "#".repeat(len - pem.len()));
    for text in [&pem, &format!("A comment\n{pem}\r\n{pem}"), &full(1 << 20)] {
        assert!(open(text).is_ok());
    }
    let lines = pem.lines().count();
    let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
    for (text, problem) in [
        (String::new(), "it has no certificate".to_owned()),
        (key.serialize_pem(), "it has no certificate".to_owned()),
        (full((1 << 20) + 1), "it is longer than 1 MiB".to_owned()),
        (pem.replace(end, ""), "the certificate in line 1 has no end".to_owned()),
        (format!("{begin}\n{pem}"), "the certificate in line 1 has no end".to_owned()),
        (
            format!("{pem}{begin}\n*\n{end}\n"),
            format!("the certificate in line {} is malformed: ", lines + 1),
        ),
        (
            format!("#\n{begin}\nAAAA\n{end}\n{pem}"),
            "the certificate in line 2 is malformed: ".to_owned(),
        ),
    ] {
        let error = open(&text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let expected = format!("{}: {problem}", ca.display());
        assert!(error.message().starts_with(&expected), "{error} {expected}");
    }
    std::fs::remove_file(&ca).unwrap();
    let options = options().ca(&ca);
    let error = Remote::open_with("UseDevelopmentStorage=true", options).unwrap_err();
    assert!(error.to_string().contains("ca.pem"), "{error}");
}
