//! Client processes, which stand for the virtual machines of the study, and the server that they
//! call: `rowstone serve` with the public development account, on a loopback port. This program
//! starts itself as both; its first argument then is [`CLIENT`] or [`SERVER`].
//!
//! A client process prepares its entities and warms up, prints a line, and measures when it reads
//! one. So all processes of a measurement start together. Its result is one line of JSON.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Outcome;
use crate::client::{Connection, parse_line};
use crate::clients::Tally;
use crate::ground::{Scope, Spread, TABLE};

/// The first argument of a client process.
pub(crate) const CLIENT: &str = "--client";
/// The first argument of a process that executes a command of rowstone.
pub(crate) const SERVER: &str = "--rowstone";

/// The size of a virtual machine in the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// A process with one thread, on one processor.
    Small,
    /// A process with eight threads, on any processor.
    ExtraLarge,
}

/// A number of client processes of one size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vms(pub(crate) Size, pub(crate) u32);

/// A running server. Dropping it ends the process.
pub(crate) struct Service {
    process: Child,
    address: SocketAddr,
    token: String,
    /// This program, which is also the client.
    program: PathBuf,
    scope: Scope,
    jobs: AtomicU32,
}

impl Size {
    pub(crate) fn threads(self) -> u32 {
        match self {
            Self::Small => 1,
            Self::ExtraLarge => 8,
        }
    }

    /// Returns the command that starts client number `number` on its processors.
    fn command(self, program: &Path, number: u32) -> Command {
        if self == Self::ExtraLarge {
            return Command::new(program);
        }
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let mut command = Command::new("taskset");
        command.args(["-c", &(number % processors).to_string()]).arg(program);
        command
    }
}

impl Service {
    /// Starts the server on the database `dir`, and returns when it listens.
    pub(crate) fn start(dir: &Path, durability: &str, scope: Scope) -> Outcome<Self> {
        let program = std::env::current_exe()?;
        let failed = |error| format!("cannot start {} as a server: {error}", program.display());
        let rights =
            ["sas", "--account-wide", "--permissions", "rwdlacu", "--expiry", "2099-01-01"];
        let token = Command::new(&program).arg(SERVER).args(rights).output().map_err(failed)?;
        if !token.status.success() {
            let reason = String::from_utf8_lossy(&token.stderr);
            return Err(format!("rowstone sas failed: {}", reason.trim()).into());
        }
        let token = String::from_utf8(token.stdout)?.trim().to_owned();
        let mut command = Command::new(&program);
        command.args([SERVER, "serve"]).arg(dir);
        command.args(["--listen", "127.0.0.1:0", "--log", "problems"]);
        command.args(["--durability", durability]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
        let mut messages = BufReader::new(process.stderr.take().expect("a pipe"));
        let mut first = String::new();
        messages.read_line(&mut first)?;
        let address = first.trim().strip_prefix("listening on http://");
        let address = address.and_then(|text| text.trim_end_matches('/').parse().ok());
        let Some(address) = address else {
            process.kill().and_then(|()| process.wait()).ok();
            return Err(format!("rowstone serve did not start: {}", first.trim()).into());
        };
        // Passes on problems of the server, so that its pipe does not fill.
        std::thread::spawn(move || io::copy(&mut messages, &mut io::stderr()));
        Ok(Self { process, address, token, program, scope, jobs: AtomicU32::new(0) })
    }

    /// Runs client processes on an empty table, and adds up their results. They insert groups of
    /// `batch` entities, or GET entities that they loaded if there is no `batch`.
    pub(crate) fn run(&self, vms: Vms, batch: Option<u32>, spread: Spread) -> Outcome<Tally> {
        let mut connection = Connection::open(self.address, &self.token)?;
        connection.delete_table(TABLE)?;
        connection.create_table(TABLE)?;
        let job = self.jobs.fetch_add(1, Ordering::Relaxed) + 1;
        let mut clients = Vec::new();
        for number in 0..vms.1 {
            let mut command = self.command(vms, number, job, batch, spread);
            let child = command.spawn().map_err(|error| {
                let program = command.get_program().display();
                format!("cannot start a client by {program}: {error}; --library starts none")
            })?;
            clients.push(Client::of(child));
        }
        let lines = clients.iter_mut().try_for_each(|client| client.line().map(drop));
        let sum = lines.and_then(|()| {
            for client in &mut clients {
                writeln!(client.process.stdin.as_mut().expect("a pipe"))?;
            }
            let mut sum = Tally::default();
            for client in &mut clients {
                sum.add(&parse_line(&client.line()?)?);
            }
            Ok(sum)
        });
        connection.delete_table(TABLE)?;
        sum
    }

    fn command(
        &self,
        vms: Vms,
        number: u32,
        job: u32,
        batch: Option<u32>,
        spread: Spread,
    ) -> Command {
        let Scope { time, inserts_max, rows, seed } = self.scope;
        let Vms(size, count) = vms;
        let mut command = size.command(&self.program, number);
        command.arg(CLIENT);
        let threads = size.threads();
        let inserts_max = inserts_max / u64::from(count);
        let values = [
            ("--address", self.address.to_string()),
            ("--token", self.token.clone()),
            ("--job", job.to_string()),
            ("--first", (number * threads).to_string()),
            ("--threads", threads.to_string()),
            ("--millis", time.as_millis().to_string()),
            ("--inserts-max", inserts_max.to_string()),
            ("--rows", rows.to_string()),
            ("--seed", seed.to_string()),
        ];
        command.args(values.iter().flat_map(|(name, value)| [*name, value]));
        if let Some(batch) = batch {
            command.args(["--batch", &batch.to_string()]);
        }
        if spread == Spread::Many {
            command.arg("--many");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }
}

impl Drop for Service {
    /// Ends the server. It has synced every write that it acknowledged, as far as its durability
    /// asks for that.
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).ok();
    }
}

/// A client process. Dropping it ends the process.
struct Client {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn of(mut process: Child) -> Self {
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Self { process, output }
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("a client process ended without a result".into());
        }
        Ok(line)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_client_has_one_thread_on_one_processor_and_an_extra_large_one_has_eight() {
        assert_eq!((Size::Small.threads(), Size::ExtraLarge.threads()), (1, 8));
        let small = Size::Small.command(Path::new("study"), 0);
        let words: Vec<_> = small.get_args().collect();
        assert_eq!(
            (small.get_program().to_str(), &words[..]),
            (Some("taskset"), &["-c".as_ref(), "0".as_ref(), "study".as_ref()][..])
        );
        let large = Size::ExtraLarge.command(Path::new("study"), 0);
        assert_eq!((large.get_program().to_str(), large.get_args().count()), (Some("study"), 0));
    }
}
