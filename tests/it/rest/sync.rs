//! `sync` over the URL of a server.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rowstone::{Db, Entity};

use super::Place;
use super::stores::Stores;

fn put(stores: &Stores, row: &str) {
    let entity = format!(r#"{{"PartitionKey":"p","RowKey":"{row}","N":1}}"#);
    stores.ok(&format!("put src Tab {entity} --mode upsert"));
}

#[test]
fn changes_are_carried_to_a_service() {
    let stores = Stores::new(800);
    let status = "sync src env:STORE --status --format json";
    assert!(!stores.ok(status).contains("lag"));
    let first = stores.ok("sync src env:STORE --state state --format json");
    assert!(first.contains("\"rows\":800") && first.contains("\"problems\":0"), "{first}");
    stores.ok("compare src env:STORE --table Tab");
    put(&stores, "a");
    put(&stores, "b");
    stores.ok("delete src Tab p b");
    let behind = stores.ok(status);
    assert!(behind.contains("\"lag_groups\":3") && behind.contains("\"open\":false"), "{behind}");
    let second = stores.ok("sync src env:STORE --state state --format json");
    // The target never had `b`, and refuses the group with its delete.
    assert!(second.contains("\"commits\":3,\"rows\":1,\"requests\":2,"), "{second}");
    stores.ok("compare src env:STORE --table Tab");
    let text = stores.ok("sync src env:STORE --status --state state");
    assert!(text.contains("behind    0 commits, 0 bytes, 0 s"), "{text}");
    let text = stores.ok("sync src env:STORE --status --state state --format prometheus");
    for metric in ["lag_groups", "lag_bytes", "lag_seconds", "open", "problems_total", "failing"] {
        let sample = format!("\nrowstone_sync_{metric}{{name=\"default\"}} 0\n");
        assert!(text.contains(&sample), "{metric}: {text}");
    }
    // Without a position the lag is not known, and without --state the last error is not.
    let text = stores.ok("sync src env:STORE --status --name x --format prometheus");
    assert!(!text.contains("lag") && !text.contains("failing"), "{text}");
    stores.fails("sync src env:STORE --format prometheus", 2, "--status");
    // Another database needs a name of its own.
    stores.ok(r#"put other Tab {"PartitionKey":"o","RowKey":"a"}"#);
    stores.fails("sync other env:STORE", 1, "try: --resync keep");
    stores.ok("sync other env:STORE --name other --rejects rejects");
    let rejects = std::fs::read_to_string(stores.place.path("rejects")).unwrap();
    assert_eq!(rejects.lines().count(), 801);
    assert!(rejects.starts_with(r#"{"kind":"only-at-target","table":"Tab","Part"#), "{rejects}");
    stores.ok("drop-table other Tab --yes");
    stores.fails("sync other env:STORE --name other", 1, "try: --allow-drop");
    stores.fails("sync src src", 2, "the same");
    stores.fails("sync env:STORE copy", 2, "has no change feed");
    stores.fails("sync src src/copy", 1, "would be lost with it");
    stores.fails("sync src env:STORE --name a/b", 2, "a name has");
    stores.fails("sync src env:STORE --name=", 2, "a name has");
    stores.fails("sync src env:STORE --state src/state", 2, "directory of a database");
    stores.fails("sync src env:STORE --state state --resync all", 2, "mirror");
}

#[test]
fn rows_are_stamped_and_a_mirror_deletes() {
    let stores = Stores::new(20);
    stores.fails("sync src env:STORE --expire", 2, "--stamp");
    stores.fails("sync src env:STORE --stamp RowKey", 1, "RowKey");
    stores.fails("sync src env:STORE --stamp not", 1, "a word of the filter language");
    let stamp = "sync src env:STORE --name station --stamp From --format json";
    assert!(stores.ok(stamp).contains("\"rows\":20"));
    put(&stores, "a");
    assert!(stores.ok(stamp).contains("\"rows\":1,"));
    let row = stores.ok("get env:STORE Tab p a");
    assert!(row.contains("Z station"), "{row}");
    let again = stores.ok(&format!("{stamp} --resync keep --expire"));
    assert!(again.contains("\"rows\":0,"), "{again}");
    // A row and a table that only the target has.
    let foreign = r#"{"PartitionKey":"p","RowKey":"foreign"}"#;
    stores.ok(&format!("put env:STORE Tab {foreign}"));
    stores.ok(&format!("put env:STORE Other {foreign}"));
    let listed = stores.ok(&format!("{stamp} --resync keep --rejects rejects"));
    assert!(listed.contains("\"problems\":2"), "{listed}");
    let rejects = std::fs::read_to_string(stores.place.path("rejects")).unwrap();
    assert!(rejects.starts_with(r#"{"kind":"only-at-target","table":"Other","m"#), "{rejects}");
    stores.ok(&format!("{stamp} --resync mirror --allow-drop"));
    assert_eq!(stores.ok("tables env:STORE --format csv"), "TableName\nrowstonesync\nTab\n");
    assert_eq!(stores.run("query env:STORE Tab --count").stdout, b"21\n");
    let refused = "rows of table 'Tab'\n  try: --resync keep";
    for ttl in ["7d", "never"] {
        stores.ok(&format!("ttl src Tab {ttl}"));
        stores.fails(&format!("{stamp} --resync mirror"), 1, refused);
        stores.fails(&format!("{stamp} --delete-missing"), 1, refused);
    }
}

/// The row expires a second or two after it was written.
#[test]
fn an_expired_row_is_deleted_at_a_service() {
    let stores = Stores::new(0);
    put(&stores, "a");
    let sync = "sync src env:STORE --stamp From --expire";
    stores.ok(sync);
    stores.ok("ttl src Tab 1s");
    let count = "query env:STORE Tab --count";
    while stores.run(count).stdout == b"1\n" {
        // Each write opens the database, which lets rows expire.
        stores.ok("put src Other {\"PartitionKey\":\"o\",\"RowKey\":\"a\"} --mode upsert");
        stores.ok(sync);
    }
    assert_eq!(stores.run(count).stdout, b"0\n");
}

/// Starts a sync that follows, and waits until it has carried a row and saved its position.
fn follow(stores: &Stores) -> Child {
    let mut command = stores.command("sync src env:STORE --follow --format json");
    let sync = command.stdout(Stdio::piped()).spawn().unwrap();
    put(stores, "a");
    let is_there = || stores.run("query env:STORE Tab --count").stdout == b"4\n";
    while !is_there() {}
    let status = "sync src env:STORE --status --format json";
    while !stores.ok(status).contains("\"lag_groups\":0,") {}
    sync
}

fn signal(process: &Child, signal: &str) {
    let id = process.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
}

#[test]
fn an_interrupted_sync_fails() {
    let stores = Stores::new(3);
    let mut killed = follow(&stores);
    killed.kill().unwrap();
    killed.wait().unwrap();
    put(&stores, "b");
    let status = stores.ok("sync src env:STORE --status --format csv");
    assert!(
        status.starts_with("name,position,newest,lag_groups,lag_bytes,lag_seconds,"),
        "{status}"
    );
    let status = stores.ok("sync src env:STORE --status");
    assert!(status.contains("behind    1 commit, "), "{status}");
    // It waits, because requests of the killed one may be under way.
    let mut command = stores.command("sync src env:STORE");
    let mut sync = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(sync.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("waiting 40 s")));
    signal(&sync, "-INT");
    assert!(lines.any(|line| line.unwrap().contains("interrupted: not all changes are carried")));
    assert_eq!(sync.wait().unwrap().code(), Some(130));
}

#[test]
fn a_sync_that_follows_ends_in_order() {
    let stores = Stores::new(3);
    let sync = follow(&stores);
    signal(&sync, "-TERM");
    let output = sync.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("\"problems\":0"), "{out}");
    let status = stores.ok("sync src env:STORE --status --format json");
    assert!(status.contains("\"open\":false,"), "{status}");
    assert!(status.contains("\"lag_groups\":0,"), "{status}");
}

/// The process that has the database open stores the position, if it listens.
#[cfg(target_os = "linux")]
#[test]
fn the_position_is_also_saved_by_the_process_that_writes() {
    let stores = Stores::new(3);
    let open = |listens| {
        let options = Db::options().keep_changes(1 << 30).control(listens);
        options.open(stores.place.path("src")).unwrap()
    };
    let put = |db: &Db, row: &str| {
        db.table("Tab").unwrap().insert(Entity::new("p", row)).unwrap();
    };
    let sync = || stores.ok("sync src env:STORE --format json");
    let db = open(true);
    let saved = || db.cursor("sync-default").unwrap().position().unwrap();
    sync();
    let first = saved().unwrap();
    put(&db, "a");
    assert!(sync().contains("\"commits\":1,"));
    assert!(saved().unwrap() > first);
    // The state file counts instead.
    put(&db, "b");
    let before = saved();
    assert!(stores.ok("sync src env:STORE --state s --format json").contains("\"commits\":1,"));
    assert_eq!(saved(), before);
    db.close().unwrap();
    let db = open(false);
    put(&db, "c");
    assert!(sync().contains("\"commits\":1,"));
    db.close().unwrap();
    // The older of both positions counts.
    let db = open(true);
    assert!(sync().contains("\"commits\":2,"));
    assert!(sync().contains("\"commits\":0,"));
    db.close().unwrap();
}

#[test]
fn changes_are_carried_from_a_server_with_extensions() {
    let [stores, other] = [800, 0].map(|rows| Stores::with(rows, "--extensions"));
    let at_other = format!("UseDevelopmentStorage=true;TableEndpoint={}", other.url());
    stores.ok("copy src Tab --to env:STORE");
    let first = stores.ok("sync env:STORE copy --format json");
    assert!(first.contains("\"commits\":0,\"rows\":800,"), "{first}");
    stores.ok("compare env:STORE copy --table Tab");
    stores.ok(r#"put env:STORE New {"PartitionKey":"it's","RowKey":"a","N@odata.type":"Edm.Int64","N":"7"}"#);
    stores.ok(r#"put env:STORE Tab {"PartitionKey":"p","RowKey":"a","N":1}"#);
    stores.ok("delete env:STORE Tab p a");
    let delete = |partition: &str| {
        let mut command = stores.command("delete env:STORE Tab --yes --partition");
        assert!(command.arg(partition).stdout(Stdio::null()).status().unwrap().success());
    };
    delete("it's 0");
    let behind = stores.ok("sync env:STORE copy --status --format json");
    assert!(behind.contains("\"lag_groups\":5,"), "{behind}");
    let second = stores.ok("sync env:STORE copy --state state --format json");
    assert!(second.contains("\"commits\":5,"), "{second}");
    assert_eq!(stores.ok("query copy Tab --count"), "100\n");
    for table in ["Tab", "New"] {
        stores.ok(&format!("compare env:STORE copy --table {table}"));
    }
    // To another server, with waits for commits.
    let mut command = stores.command("sync env:STORE env:OTHER --follow --format json");
    let mut sync = command.env("OTHER", &at_other).stdout(Stdio::null()).spawn().unwrap();
    let is_there = |count: &[u8]| other.run("query env:STORE Tab --count").stdout == count;
    while !is_there(b"100\n") {}
    delete("it's 1");
    stores.ok(r#"put env:STORE Tab {"PartitionKey":"p","RowKey":"b","N":2}"#);
    while !is_there(b"1\n") {}
    signal(&sync, "-TERM");
    assert!(sync.wait().unwrap().success());
    let mut command = stores.command("compare env:STORE env:OTHER --table Tab");
    assert!(command.env("OTHER", &at_other).output().unwrap().status.success());
    // The target deletes ranges, too.
    let changes = other.ok("changes env:STORE");
    assert!(
        changes.contains(r#""op":"delete-range","table":"Tab","range":"['it''s 1'"#),
        "{changes}"
    );
    assert!(!changes.contains(r#""op":"delete","#), "{changes}");
    stores.fails("sync env:STORE env:STORE", 2, "the same");
}

#[test]
fn a_sync_from_a_server_ends_when_the_server_is_restored() {
    let place = Place::new();
    let server = place.serve("--extensions").with_table();
    let store = server.connection();
    let listen = format!("--listen {} --extensions", server.at);
    let command = |arguments: &str| {
        let mut command = place.command(arguments);
        command.env("STORE", &store);
        command
    };
    let mut sync = command("sync env:STORE copy --follow");
    let sync = sync.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let status = || command("sync env:STORE copy --status --format json").output().unwrap().stdout;
    while !String::from_utf8(status()).unwrap().contains("\"lag_groups\":0,") {}
    server.stop();
    for arguments in ["backup db kept", "restore kept again"] {
        assert!(command(arguments).stdout(Stdio::null()).status().unwrap().success());
    }
    std::fs::rename(place.path("db"), place.path("old")).unwrap();
    std::fs::rename(place.path("again"), place.path("db")).unwrap();
    let _server = place.serve(&listen);
    let output = sync.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("was restored") && err.contains("--resync keep"), "{err}");
}
