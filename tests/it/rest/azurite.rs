//! `azurite-table`: the options of Azurite's command.

use super::{Key, Place, Server};

#[test]
fn the_options_of_azurite_start_a_server() {
    let place = Place::new();
    let start = |options: &str| {
        let line = format!("azurite-table --tablePort 0 --tableHost localhost {options}");
        Server::start(place.command(&line), Key::development())
    };
    start("--inMemoryPersistence -L --skipApiVersionCheck --disableTelemetry").with_table();
    assert_eq!(std::fs::read_dir(place.0.path()).unwrap().count(), 0, "the disk was used");

    place.write("__azurite_db_table__.json", "{}");
    let server = start("-l . -s --disableProductStyleUrl").with_table();
    server.signal("-TERM");
    let (status, lines) = server.wait();
    assert!(status.success(), "{lines:?}");
    let text = lines.join("\n");
    assert!(text.contains("note: Azurite's data in . is not read"), "{text}");
    assert!(!text.contains("POST"), "a request was logged: {text}");
    start("-d debug.log").ask("GET", "/Tables('people')", "").is(200);
    assert!(place.path("rowstone-tables").is_dir() && !place.path("debug.log").exists());
}

#[test]
fn what_would_serve_something_else_is_refused() {
    let place = Place::new();
    let refused = |options: &str, accounts: Option<&str>| {
        let mut command = place.command(&format!("azurite-table {options}"));
        command.envs(accounts.map(|accounts| ("AZURITE_ACCOUNTS", accounts)));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused("", Some("a:b")).contains("AZURITE_ACCOUNTS is set"));
    assert!(refused("--tableHost 0.0.0.0 --tablePort 0", None).contains("--accounts"));
    assert!(refused("--tableHost nowhere", None).contains("nowhere:10002"));
    assert!(refused("--oauth basic", None).contains("--oauth"));
    assert!(refused("--cert c.pem", None).contains("--key"));
    assert_eq!(std::fs::read_dir(place.0.path()).unwrap().count(), 0);
}
