//! Replays fuzz targets, all of them by default, with their stored corpus and with mutations of it:
//! `replay [--seconds N] [NAME…]`.

use std::time::Duration;

fn main() {
    let mut names = Vec::new();
    let mut seconds = 10;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => {
                let value = args.next().and_then(|value| value.parse().ok());
                seconds = value.expect("--seconds wants a number");
            }
            _ => names.push(arg),
        }
    }
    let rest: (&str, rowstone::fuzzing::Target) = ("rest", rowstone::fuzzing_rest::rest);
    for (name, target) in rowstone::fuzzing::TARGETS.iter().copied().chain([rest]) {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            rowstone_fuzz::run(name, target, Duration::from_secs(seconds));
        }
    }
}
