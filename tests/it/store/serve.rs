//! The contract over `rowstone serve`.

use rowstone::store::Remote;

use super::{Deviation, run};
use crate::rest::Place;

const DEVIATIONS: &[Deviation] = &[(
    "nearly 4 MiB of binaries",
    "InvalidInput RequestBodyTooLarge",
    "a request has at most 4 MiB, and Base64 is longer than the bytes",
)];

#[test]
fn a_server_is_a_store() {
    let place = Place::new();
    let server = place.serve("--log off --durability buffered");
    let cases = run(&Remote::open(&server.connection()).unwrap(), DEVIATIONS);
    assert!(cases >= 300, "{cases}");
    server.stop();
}

#[cfg(feature = "serde")]
#[test]
fn todo_runs_over_a_server() {
    let place = Place::new();
    let server = place.serve("--log off --durability buffered");
    super::todo::check("env:CONNECTION", Some(&server.connection()));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, server.connection().as_bytes()).unwrap();
    super::todo::check(&format!("file:{}", file.path().display()), None);
}
