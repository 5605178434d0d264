//! The command line: passes the arguments to `cli` and returns its exit code.

fn main() -> std::process::ExitCode {
    rowstone::cli::run(std::env::args_os())
}
