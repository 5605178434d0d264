//! Tests of the server as a process: the real program on its own socket, and clients that send
//! valid, invalid or truncated bytes.
//!
//! Invariant: a test waits for an action of the server and has no time limit, because a busy
//! machine might exceed any limit. The server's own time limits are options. The end of the
//! server's process ends every wait.
//!
//! Unit tests next to the code cover the responses of operations, and `tests/clients` third-party
//! clients.
#![expect(
    clippy::disallowed_methods,
    reason = "keys and certificates are the user's files, requests have a date, a thread reads the output"
)]

#[cfg(target_os = "linux")]
mod azurite;
mod backups;
mod behave;
mod client;
mod extensions;
#[cfg(all(target_os = "linux", feature = "remote"))]
mod killed;
mod limits;
mod log;
mod malformed;
mod shared;
mod slow;
mod stop;
#[cfg(feature = "remote")]
mod stores;
#[cfg(all(target_os = "linux", feature = "remote"))]
mod sync;
mod tls;
#[cfg(feature = "remote")]
mod verbs;
#[cfg(feature = "remote")]
mod view;
mod watched;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use client::{Answer, Client, Key};

/// A running server, killed when dropped.
pub(crate) struct Server {
    child: Child,
    at: SocketAddr,
    metrics: Option<SocketAddr>,
    output: Arc<Output>,
    reader: Option<JoinHandle<()>>,
    key: Key,
}

/// The program's lines on standard error.
#[derive(Default)]
struct Output {
    lines: Mutex<Vec<String>>,
    more: Condvar,
    has_ended: AtomicBool,
}

/// A directory for one test; the database is `db` in it.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Returns a command with arguments split at spaces, in this directory.
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowstone"));
        command.args(arguments.split_whitespace()).current_dir(self.0.path());
        command
    }

    /// Starts a server of `db` with more options and the public development account. Time limits
    /// that are not among the options are set to one day, so that a client on a busy machine does
    /// not exceed them.
    pub(crate) fn serve(&self, options: &str) -> Server {
        let listen = if options.contains("--listen") { "" } else { "--listen 127.0.0.1:0" };
        let mut command = self.command(&format!("serve db {listen} {options}"));
        for limit in ["--header-time", "--body-time", "--send-time", "--idle-time"] {
            if !options.contains(limit) {
                command.args([limit, "86400"]);
            }
        }
        Server::start(command, Key::development())
    }

    /// Starts a server that must refuse to start; returns its status and output.
    fn refused(&self, options: &str) -> (Option<i32>, String) {
        let output = self.command(&format!("serve db {options}")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    /// Returns the output of `rowstone sas`.
    fn sas(&self, arguments: &str) -> String {
        let output = self.command(&format!("sas {arguments}")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Server {
    fn start(mut command: Command, key: Key) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let output = Arc::new(Output::default());
        let heard = Arc::clone(&output);
        // Unread output would fill the pipe and block the server.
        let reader = thread::spawn(move || {
            for line in stderr.lines() {
                heard.lines.lock().unwrap().push(line.unwrap());
                heard.more.notify_all();
            }
            let _lines = heard.lines.lock().unwrap();
            heard.has_ended.store(true, Ordering::Relaxed);
            heard.more.notify_all();
        });
        let is_public = key == Key::development();
        let wanted = if is_public { "DefaultEndpointsProtocol=" } else { "listening on " };
        output.wait_for(wanted);
        let at = output.address("listening on ").unwrap();
        let metrics = output.address("metrics on ");
        Server { child, at, metrics, output, reader: Some(reader), key }
    }

    /// Returns the connection string of the server's account.
    pub(crate) fn connection(&self) -> String {
        let Server { at, key: Key { account, key }, .. } = self;
        format!("AccountName={account};AccountKey={key};TableEndpoint=http://{at}/{account}")
    }

    /// Returns the address to which the server listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.at
    }

    fn client(&self) -> Client {
        Client::connect(self.at, self.key.clone())
    }

    /// Sends one request on a new connection.
    #[track_caller]
    fn ask(&self, method: &str, target: &str, body: &str) -> Answer {
        self.client().ask(method, target, body)
    }

    /// Checks that other clients are served.
    #[track_caller]
    fn is_well(&self) {
        self.ask("GET", "/Tables", "").is(200);
    }

    /// Creates the table `people`.
    fn with_table(self) -> Self {
        self.ask("POST", "/Tables", r#"{"TableName":"people"}"#).is(201);
        self
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Waits for the exit; returns its status and all output.
    fn wait(mut self) -> (ExitStatus, Vec<String>) {
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        (status, std::mem::take(&mut self.output.lines.lock().unwrap()))
    }

    /// Sends SIGTERM and returns the output.
    #[track_caller]
    pub(crate) fn stop(self) -> Vec<String> {
        self.signal("-TERM");
        let (status, lines) = self.wait();
        assert_eq!(status.code(), Some(0), "{lines:?}");
        lines
    }

    /// Returns the peak of the server's resident memory, in bytes.
    #[cfg(target_os = "linux")]
    fn memory(&self) -> u64 {
        self.status("VmHWM:")
    }

    /// Returns the server's resident memory in bytes, once it has at most `descriptors` open.
    #[cfg(target_os = "linux")]
    fn resident_when_idle(&self, descriptors: usize) -> u64 {
        while self.descriptors() > descriptors {
            thread::yield_now();
        }
        self.status("VmRSS:")
    }

    /// Returns the number of the server's open descriptors.
    #[cfg(target_os = "linux")]
    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Returns a number from the server's `/proc/PID/status`, in bytes.
    #[cfg(target_os = "linux")]
    fn status(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Returns a counter of the database.
    fn counter(&self, name: &str) -> u64 {
        let answer = self.ask("GET", "/$rowstone/stats", "");
        let stats: serde_json::Value = serde_json::from_str(answer.is(200).text()).unwrap();
        stats["counters"][name].as_u64().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Output {
    /// Waits for a line that contains `text`, or for the end of the output.
    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        let mut lines = self.lines.lock().unwrap();
        loop {
            if let Some(line) = lines.iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            assert!(!self.has_ended.load(Ordering::Relaxed), "no '{text}' in {lines:?}");
            lines = self.more.wait(lines).unwrap();
        }
    }

    /// Returns the address in a line that starts with `begin`.
    fn address(&self, begin: &str) -> Option<SocketAddr> {
        let lines = self.lines.lock().unwrap();
        let rest = lines.iter().find_map(|line| line.strip_prefix(begin))?;
        let (_, rest) = rest.split_once("://")?;
        rest.split('/').next()?.parse().ok()
    }
}

/// Returns the content of a file for `--accounts`.
fn accounts(name: &str, keys: &[&str]) -> String {
    format!("[{{\"name\":\"{name}\",\"keys\":{}}}]", serde_json::to_string(keys).unwrap())
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}
