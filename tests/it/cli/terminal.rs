//! Tests of a person at a terminal, which the program `script` of util-linux makes.
//!
//! The tests pass without this program.

use std::io::{ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::{Place, parts};

/// A program at a terminal.
struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    screen: ChildStdout,
    /// Output that the test has not read yet.
    shown: String,
}

impl Terminal {
    /// Starts the program; `None` if there is no terminal.
    fn start(place: &Place, arguments: &str) -> Option<Self> {
        let mut command = place.command("");
        let line = format!("exec {} {arguments}", command.get_program().to_str().unwrap());
        command = std::process::Command::new("script");
        command.args(["-qefc", &line, "/dev/null"]).current_dir(place.path(""));
        command.env("XDG_STATE_HOME", place.path("state")).env("TERM", "xterm");
        command.env("COLUMNS", "80").env("SHELL", "/bin/sh");
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = match started {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            child => child.unwrap(),
        };
        let (keys, screen) = (child.stdin.take(), child.stdout.take().unwrap());
        Some(Self { child, keys, screen, shown: String::new() })
    }

    fn press(&mut self, keys: &str) {
        let to = self.keys.as_mut().unwrap();
        to.write_all(keys.as_bytes()).unwrap();
        to.flush().unwrap();
    }

    /// Waits until `text` is shown, and returns all before it.
    #[track_caller]
    fn wait(&mut self, text: &str) -> String {
        let mut bytes = std::mem::take(&mut self.shown).into_bytes();
        loop {
            let shown = String::from_utf8_lossy(&bytes);
            if let Some((before, after)) = shown.split_once(text) {
                self.shown = after.to_owned();
                return before.to_owned();
            }
            let mut more = [0; 1 << 12];
            let len = self.screen.read(&mut more).unwrap_or(0);
            assert!(len > 0, "'{text}' is not in {shown:?}");
            bytes.extend_from_slice(&more[..len]);
        }
    }

    /// Waits for the end, and returns the status.
    fn end(mut self) -> Option<i32> {
        let mut rest = Vec::new();
        self.screen.read_to_end(&mut rest).unwrap_or(0);
        drop(self.keys.take());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Without its terminal the program ends.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// After Ctrl-C, a failure and an unknown command the session goes on.
#[test]
fn only_ctrl_d_ends_a_shell() {
    let place = parts();
    place.put("parts", r#"{"PartitionKey":"wild","RowKey":"r","A":"a\u001b[31mb\u0007"}"#);
    let Some(mut shell) = Terminal::start(&place, "shell db") else { return };
    shell.wait("db> ");
    shell.press("changes --follow\r");
    shell.wait("m4x20");
    shell.wait("\\u001b[31mb");
    shell.press("\u{3}");
    shell.wait("db> ");
    shell.press("get parts nuts none\r");
    shell.wait("ResourceNotFound");
    shell.wait("db> ");
    shell.press("nonsense\r");
    shell.wait("unrecognized subcommand");
    shell.wait("db> ");
    shell.press("get parts wild r\r");
    shell.wait("\\u{1b}[31mb\\u{7}");
    shell.wait("db> ");
    shell.press("\u{3}");
    shell.wait("db> ");
    shell.press("\u{4}");
    assert_eq!(shell.end(), Some(0));
}

#[test]
fn a_removal_is_confirmed_in_lines_that_fit() {
    let place = parts();
    let Some(mut delete) = Terminal::start(&place, "delete db parts --partition bolts") else {
        return;
    };
    let question = delete.wait("Go on? [y/N]");
    assert!(question.contains("1 entity of parts") && question.trim().len() <= 80, "{question}");
    delete.press("n\r");
    delete.wait("would be removed");
    assert_eq!(delete.end(), Some(2));
    place.ok("get db parts bolts m4x20");
}

#[test]
fn a_watched_picture_replaces_the_one_before() {
    let place = parts();
    let Some(mut watch) = Terminal::start(&place, "partitions db parts --watch 1") else { return };
    watch.wait("\u{1b}[H\u{1b}[J");
    watch.wait("parts: 2 entities");
}

#[cfg(feature = "rest")]
#[test]
fn a_server_tells_of_a_new_database_and_folds_its_errors() {
    let place = Place::new();
    let command = "serve db --log off --listen 127.0.0.1:0";
    let Some(mut serve) = Terminal::start(&place, command) else { return };
    serve.wait("note: created the database db\r\n");
    serve.wait("listening on");
    let mut second = Terminal::start(&place, command).unwrap();
    let text = second.wait("database open\r\n");
    assert!(text.lines().count() > 2 && text.lines().all(|line| line.len() <= 80), "{text:?}");
    assert_ne!(second.end(), Some(0));
    serve.press("\u{3}");
    assert_eq!(serve.end(), Some(0));
}

/// Elsewhere the log is JSON: `rest::log` reads it.
#[cfg(feature = "rest")]
#[test]
fn a_server_logs_lines_for_people() {
    let place = Place::new();
    let Some(mut serve) = Terminal::start(&place, "serve db --listen 127.0.0.1:0") else { return };
    serve.wait("listening on http://");
    let address = serve.wait("/");
    let lines = serve.wait("DefaultEndpointsProtocol=");
    assert!(lines.ends_with("connection string:\r\n"), "{lines:?}");
    serve.wait("\n");
    let mut client = std::net::TcpStream::connect(address).unwrap();
    let path = "/devstoreaccount1/people%1B&sig=c2VjcmV0";
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    let line = serve.wait(" ms\r\n");
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(time.len() == "04:05:06Z".len() && time.ends_with('Z'), "{line}");
    let words: Vec<_> = rest.split(' ').collect();
    assert_eq!(words[..2], ["GET", "/devstoreaccount1/people%1B&sig=********"], "{line}");
    assert!(words[2].starts_with('4') && words.last().unwrap().parse::<f64>().is_ok(), "{line}");
    serve.press("\u{3}");
    assert_eq!(serve.end(), Some(0));
}
