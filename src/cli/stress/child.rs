//! The process under test: this same executable as `exec`, over pipes, under limits of the shell's `ulimit`.
//!
//! Invariants
//! * only whole lines count as answers: what a killed process wrote of a line was not said;
//! * answers are taken in by a thread of their own, so that neither side waits for the other's pipe for ever;
//! * a process that is dropped is killed and waited for.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// `setrlimit` by way of the shell, which then becomes the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// Descriptors.
    pub(super) open_files: Option<u64>,
    /// Bytes of one file.
    pub(super) file_bytes: Option<u64>,
    /// Whether a file that would grow too long is an error (EFBIG) instead of the end by SIGXFSZ.
    pub(super) ignore_signal: bool,
}

/// A running `rowstone exec`.
pub(super) struct Child {
    process: std::process::Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Vec<u8>>,
}

/// What came within the time that was waited.
pub(super) enum Heard {
    Answer(Vec<u8>),
    Nothing,
    /// The process has closed its output; there is nothing more to come.
    End,
}

/// How a process ended.
#[derive(Debug)]
pub(super) struct Ended {
    status: ExitStatus,
    /// What it wrote on standard error.
    pub(super) text: String,
}

/// The signal of a file that grew beyond its limit, on Linux and the BSDs alike.
const SIGXFSZ: i32 = 25;
/// `ulimit -f` counts these, as POSIX has it.
const ULIMIT_BLOCK_BYTES: u64 = 512;

impl Child {
    pub(super) fn start(arguments: &[OsString], limits: &Limits) -> Result<Child, String> {
        let cannot = |error: io::Error| format!("cannot start the program: {error}");
        let program = std::env::current_exe().map_err(cannot)?;
        let mut command = match limits.script() {
            None => Command::new(&program),
            Some(script) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(script).arg(&program);
                command
            }
        };
        command.args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(cannot)?;
        let requests = process.stdin.take();
        let (sender, answers) = channel();
        let output = process.stdout.take();
        // Made first: a process that cannot be listened to is ended by being dropped.
        let child = Child { process, requests, answers };
        if let Some(output) = output {
            let thread = std::thread::Builder::new().name("rowstone-listen".into());
            thread.spawn(move || listen(output, &sender)).map_err(cannot)?;
        }
        Ok(child)
    }

    /// Hands a request over; false if nobody reads any more.
    pub(super) fn send(&mut self, line: &[u8]) -> bool {
        let sent = self.requests.as_mut().map(|requests| requests.write_all(line));
        matches!(sent, Some(Ok(())))
    }

    pub(super) fn hear(&self, wait: Duration) -> Heard {
        match self.answers.recv_timeout(wait) {
            Ok(answer) => Heard::Answer(answer),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::End,
        }
    }

    /// The end of the requests: the process answers what it has, closes the database and ends.
    pub(super) fn end_requests(&mut self) {
        self.requests = None;
    }

    /// Whether it was told that there are no more requests.
    pub(super) fn is_told(&self) -> bool {
        self.requests.is_none()
    }

    /// Signal 9, now.
    pub(super) fn kill(&mut self) {
        // One that has ended already is as dead.
        drop(self.process.kill());
    }

    /// Waits for the end. Requires: killed, or told that there are no more requests.
    pub(super) fn wait(&mut self) -> Result<Ended, String> {
        self.requests = None;
        let cannot = |error: io::Error| format!("cannot wait for the program: {error}");
        let mut text = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            let mut bytes = Vec::new();
            errors.read_to_end(&mut bytes).map_err(cannot)?;
            text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        }
        let status = self.process.wait().map_err(cannot)?;
        Ok(Ended { status, text })
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        drop(self.process.wait());
    }
}

impl Limits {
    fn script(&self) -> Option<String> {
        let mut script = String::new();
        if self.ignore_signal {
            // An ignored signal stays ignored in the program that the shell becomes.
            script.push_str("trap '' XFSZ; ");
        }
        if let Some(count) = self.open_files {
            script.push_str(&format!("ulimit -n {count}; "));
        }
        if let Some(bytes) = self.file_bytes {
            script.push_str(&format!("ulimit -f {}; ", bytes.div_ceil(ULIMIT_BLOCK_BYTES)));
        }
        (!script.is_empty()).then(|| format!("{script}exec \"$0\" \"$@\""))
    }
}

impl Ended {
    pub(super) fn is_success(&self) -> bool {
        self.status.success()
    }

    /// Ended by itself because an operation failed, and said so.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.status.code(), Some(1 | 2)) && self.text.starts_with("error: ")
    }

    /// Ended by the system because a file would have grown beyond its limit.
    pub(super) fn is_file_limit(&self) -> bool {
        self.status.signal() == Some(SIGXFSZ)
    }

    pub(super) fn describe(&self) -> String {
        match &*self.text {
            "" => format!("{}", self.status),
            text => format!("{}, saying:\n{text}", self.status),
        }
    }
}

fn listen(output: ChildStdout, answers: &Sender<Vec<u8>>) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        let read = output.read_until(b'\n', &mut line);
        let whole = line.pop() == Some(b'\n');
        if read.is_err() || !whole || answers.send(line).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_the_shell() {
        assert_eq!(Limits::default().script(), None);
        let limits =
            Limits { open_files: Some(20), file_bytes: Some(1 << 20), ignore_signal: true };
        let script = "trap '' XFSZ; ulimit -n 20; ulimit -f 2048; exec \"$0\" \"$@\"";
        assert_eq!(limits.script().as_deref(), Some(script));
    }
}
