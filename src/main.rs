//! argv to `cli`, result to exit code.

fn main() -> std::process::ExitCode {
    rowstone::cli::run()
}
