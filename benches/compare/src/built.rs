//! Records the build that measured the figures: commit, compiler, and versions of the other
//! engines.
//!
//! Not here: the description of the machine (`limits.rs`).

use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::engines::Engine;

const UNKNOWN: &str = "unknown";

/// The build of this benchmark program with which a run was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Built {
    /// Commit of the repository; the suffix `-dirty` means modified files.
    pub commit: String,
    pub rustc: String,
    /// Names and versions of the other engines that are compiled in.
    pub peers: Vec<String>,
}

impl Built {
    /// Describes this build. The commit is read from the repository during the call.
    pub fn now() -> Self {
        let is_peer = |engine: &Engine| *engine != Engine::Rowstone && engine.is_built();
        let version = |engine: Engine| {
            let about = engine.about();
            format!("{} {}", about.name, about.version)
        };
        Self {
            commit: asked("git", &["describe", "--always", "--dirty", "--exclude=*"]),
            rustc: asked("rustc", &["--version"]),
            peers: Engine::ALL.into_iter().filter(is_peer).map(version).collect(),
        }
    }

    pub fn text(&self) -> String {
        let Self { commit, rustc, peers } = self;
        let peers = if peers.is_empty() { "none".to_owned() } else { peers.join(", ") };
        format!("rowstone and this harness: commit {commit}, {rustc}. Peers: {peers}.")
    }
}

/// Runs a program in the directory of this package, and returns its output.
fn asked(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let answer = output.ok().filter(|output| output.status.success());
    let text = answer.and_then(|output| String::from_utf8(output.stdout).ok());
    let line = text.map(|text| text.trim().to_owned()).filter(|line| !line.is_empty());
    line.unwrap_or_else(|| UNKNOWN.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_unknown() {
        assert_eq!(asked("no-such-program-anywhere", &[]), UNKNOWN);
        assert_eq!(asked("false", &[]), UNKNOWN);
        assert!(!Built::now().text().is_empty());
    }
}
