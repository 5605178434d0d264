//! Checks that the oracle, with which tests compare the engine, is independent of the engine: it
//! may use the types of values, but no code that stores values.

use super::Offence;
use super::source::Source;

/// The modules of the oracle and the modules that it depends on.
const ORACLE: [&str; 4] = [
    "src/testing/sim/expr.rs",
    "src/testing/sim/oracle.rs",
    "src/testing/sim/row.rs",
    "src/testing/sim/value.rs",
];
/// The parts of the crate that these modules may use.
const ALLOWED: [&str; 4] =
    ["crate::model::", "crate::named::named", "crate::options::Durability", "crate::lsm::GateMode"];

pub fn check(source: &Source) -> Vec<Offence> {
    if !ORACLE.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let mut offences = Vec::new();
    for (number, code) in source.code.iter().enumerate() {
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at..];
            if !ALLOWED.iter().any(|allowed| rest.starts_with(allowed)) {
                let what = format!("the oracle uses `{}`", rest.trim_end());
                offences.push(Offence::new(&source.path, number + 1, "oracle", what));
            }
        }
    }
    offences
}

#[test]
fn the_oracle_uses_values_only() {
    let check = |text: &str| check(&Source::new("src/testing/sim/oracle.rs", text)).len();
    assert_eq!(check("use crate::model::Value;\nuse crate::options::Durability;"), 0);
    assert_eq!(check("use crate::lsm::Engine;"), 1);
    assert_eq!(check("use crate::options::Options;"), 1);
    assert_eq!(check("fn f() { crate::table::Table::new() }"), 1);
}
