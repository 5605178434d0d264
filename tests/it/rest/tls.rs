//! Tests of the server over TLS.

use std::net::TcpStream;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::client::{Client, connect};
use super::{Place, Server, path_text};

type Encrypted = Client<StreamOwned<ClientConnection, TcpStream>>;

/// Starts a server with a new certificate; also returns a client configuration that trusts it.
fn encrypted(place: &Place, options: &str) -> (Server, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    place.write("cert.pem", made.cert.pem());
    place.write("key.pem", made.signing_key.serialize_pem());
    let (cert, key) = (place.path("cert.pem"), place.path("key.pem"));
    let server = place.serve(&format!(
        "--tls-cert {} --tls-key {} {options}",
        path_text(&cert),
        path_text(&key)
    ));
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (server, Arc::new(config))
}

fn client(server: &Server, config: &Arc<ClientConfig>) -> Encrypted {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    let stream = StreamOwned::new(connection, connect(server.at).unwrap());
    Client::over(stream, server.key.clone())
}

#[test]
fn requests_are_answered_over_tls() {
    let place = Place::new();
    let (server, config) = encrypted(&place, "");
    let mut client = client(&server, &config);
    let answer = client.ask("POST", "/Tables", r#"{"TableName":"people"}"#);
    let location = answer.is(201).header("location").unwrap();
    assert!(location.starts_with("https://"), "{location}");
    for i in 0..20 {
        let body = format!(r#"{{"PartitionKey":"p","RowKey":"{i}","A":"{}"}}"#, "x".repeat(30_000));
        client.ask("POST", "/people", &body).is(201);
    }
    let page = client.ask("GET", "/people", "");
    assert_eq!(page.is(200).text().matches("\"RowKey\":").count(), 20);
    server.stop();
    client.is_closed();
}

#[test]
fn connections_without_tls_are_closed() {
    let place = Place::new();
    let (server, config) = encrypted(&place, "--header-time 1 --idle-time 1");
    let mut plain = server.client();
    plain.send(server.key.request("GET", "/Tables", "", b""));
    let rest = plain.rest();
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
    let mut silent = server.client();
    silent.is_closed();
    let mut half = server.client();
    half.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    half.rest();
    client(&server, &config).ask("GET", "/Tables", "").is(200);
}

#[test]
fn tokens_may_require_tls() {
    let place = Place::new();
    let (server, config) = encrypted(&place, "");
    let token = place.sas("--account-wide --permissions r --expiry 2100-01-01 --protocols https");
    let request =
        format!("GET /devstoreaccount1/Tables?{token} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut encrypted = client(&server, &config);
    encrypted.send(&request);
    encrypted.answer().is_error(403, "AuthorizationPermissionMismatch");
    let token = place.sas("--account-wide --permissions l --expiry 2100-01-01 --protocols https");
    let request =
        format!("GET /devstoreaccount1/Tables?{token} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    encrypted.send(&request);
    encrypted.answer().is(200);
    drop(encrypted);
    server.stop();
    let server = place.serve("");
    let mut plain = server.client();
    plain.send(&request);
    plain.answer().is_error(403, "AuthorizationProtocolMismatch");
}

/// The certificates of `--ca` are trusted.
#[cfg(feature = "remote")]
#[test]
fn commands_trust_a_given_certificate() {
    let place = Place::new();
    let (server, _) = encrypted(&place, "");
    place.write("account", "UseDevelopmentStorage=true");
    let url = format!("https://localhost:{}/devstoreaccount1", server.at.port());
    let run = |ca: &str| {
        let create = format!("create-table {url} People --account-file file:account --ca {ca}");
        place.command(&create).output().unwrap()
    };
    let output = run("cert.pem");
    assert!(output.status.success(), "{output:?}");
    let output = run("account");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("account: it has no certificate"), "{text}");
}
