//! Tests scheduled backups of the server, and commands on a database that the server has open.

use super::Place;

#[test]
fn the_server_makes_scheduled_backups_and_executes_commands() {
    let place = Place::new();
    let server = place.serve("--backup-to kept --backup-every 1d --keep 1").with_table();
    server.output.wait_for("backup 1 in kept: ");
    let run = |arguments: &str| {
        let output = place.command(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(r#"put db people {"PartitionKey":"p","RowKey":"r","A":1}"#);
    let found = server.ask("GET", "/people(PartitionKey='p',RowKey='r')", "");
    assert!(found.is(200).text().contains("\"A\":1"), "{}", found.text());
    assert!(run("backup db kept").starts_with("backup 2: "));
    drop(server);
    run("restore kept again");
    assert!(run("scan again people").contains("1 entity"));
}

#[test]
fn the_server_does_not_start_with_a_directory_that_cannot_have_its_backups() {
    let place = Place::new();
    let output =
        place.command("serve db --listen 127.0.0.1:0 --backup-to db/kept").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && errors.contains("kept"), "{errors}");
}
