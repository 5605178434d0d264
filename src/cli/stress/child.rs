//! Runs the process under test: the current executable with the subcommand `exec`. Requests and
//! answers pass through pipes. A shell sets limits with `ulimit` before it executes the program.
//!
//! Invariants
//! * only complete lines count as answers: a partial line of a killed process is ignored;
//! * a separate thread receives answers, so that the two sides cannot deadlock on their pipes;
//! * a process that is dropped is killed and waited for.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Limits on the process, which the shell sets by `ulimit` before it executes the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// Maximum number of open file descriptors.
    pub(super) open_files: Option<u64>,
    /// Maximum size of a file in bytes.
    pub(super) file_bytes: Option<u64>,
    /// Whether the process ignores SIGXFSZ. If so, a write beyond `file_bytes` fails with EFBIG;
    /// otherwise the signal ends the process.
    pub(super) ignore_signal: bool,
}

/// A running `rowstone exec`.
pub(super) struct Child {
    process: std::process::Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Vec<u8>>,
}

/// The result of waiting for an answer for a limited time.
pub(super) enum Heard {
    Answer(Vec<u8>),
    Nothing,
    /// The process has closed its output; no more answers follow.
    End,
}

/// How a process ended.
#[derive(Debug)]
pub(super) struct Ended {
    status: ExitStatus,
    /// The output of the process on standard error.
    pub(super) text: String,
}

/// The signal that a process gets if a file would exceed the size limit. Its number is the same on
/// Linux and the BSDs.
const SIGXFSZ: i32 = 25;
/// The unit of `ulimit -f`, as defined by POSIX.
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
        // `child` is created before the thread is started: if that fails, dropping `child` kills
        // the process.
        let child = Child { process, requests, answers };
        if let Some(output) = output {
            let thread = std::thread::Builder::new().name("rowstone-listen".into());
            thread.spawn(move || listen(output, &sender)).map_err(cannot)?;
        }
        Ok(child)
    }

    /// Sends a request; false if the process no longer reads.
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

    /// Closes the pipe of requests. The process then answers the requests that it has received,
    /// closes the database and exits.
    pub(super) fn end_requests(&mut self) {
        self.requests = None;
    }

    /// Whether the pipe of requests is closed.
    pub(super) fn is_told(&self) -> bool {
        self.requests.is_none()
    }

    /// Sends signal 9.
    pub(super) fn kill(&mut self) {
        // Fails only if the process has already ended.
        drop(self.process.kill());
    }

    /// Closes the pipe of requests, and waits for the process to end.
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
            // An ignored signal remains ignored in the program that the shell executes.
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

    /// Whether the process exited because an operation failed, and reported the error.
    pub(super) fn is_refusal(&self) -> bool {
        // Notes may come before the error.
        let has_error = self.text.lines().any(|line| line.starts_with("error: "));
        matches!(self.status.code(), Some(1 | 2)) && has_error
    }

    /// Whether the system ended the process because a file would have exceeded its size limit.
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
    fn limits_of_the_child_are_set_by_the_shell() {
        assert_eq!(Limits::default().script(), None);
        let limits =
            Limits { open_files: Some(20), file_bytes: Some(1 << 20), ignore_signal: true };
        let script = "trap '' XFSZ; ulimit -n 20; ulimit -f 2048; exec \"$0\" \"$@\"";
        assert_eq!(limits.script().as_deref(), Some(script));
    }
}
