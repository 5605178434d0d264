//! Runs every workload with few entities. This checks the harness and the engines' adapters, and
//! measures nothing.

use std::path::Path;

use crate::engines::Engine;
use crate::plan::{self, Form, Selection, Step};
use crate::results::{Line, Results};
use crate::rows::{ROWS, Session};
use crate::store::Encoding;
use crate::workloads;

fn every_row(engine: Engine, encoding: Encoding) {
    let dir = std::env::temp_dir().join(format!(
        "rowstone-compare-{}-{}-{}",
        engine.name(),
        plan::encoding_name(encoding),
        std::process::id()
    ));
    let selection = Selection {
        word: String::new(),
        engines: vec![engine],
        csv: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/data/flights.csv.gz"),
        flights: 2_000,
        seed: 1,
    };
    let mut results = Results::default();
    for Step { mut spec, .. } in plan::steps(&Form::tiny(), &selection, &dir, &results) {
        if spec.encoding != encoding {
            continue;
        }
        // Skips rows that start the current executable as a child process. In a test, that
        // executable is the test runner.
        spec.rows.retain(|row| !row.starts_with("open-killed"));
        drop(std::fs::remove_dir_all(&dir));
        if spec.session == Session::Cold {
            workloads::run(&plan::load_before(&spec), &mut |_| ());
        }
        workloads::run(&spec, &mut |line| results.add(line));
    }
    drop(std::fs::remove_dir_all(&dir));
    let is_first = engine.encodings()[0] == encoding;
    for row in ROWS
        .iter()
        .filter(|row| !row.name.starts_with("open-killed") && (is_first || row.all_encodings))
    {
        let found = results.figures.iter().find(|(key, _)| key.row == row.name);
        let is_unsupported = results.unsupported.iter().any(|key| key.row == row.name);
        assert!(found.is_some() || is_unsupported, "{} was not measured", row.name);
        if let Some((_, figures)) = found {
            assert!(figures.value.is_finite() && figures.value > 0.0, "{}: {figures:?}", row.name);
        }
    }
}

#[test]
fn every_row_of_rowstone() {
    every_row(Engine::Rowstone, Encoding::Native);
}

#[test]
fn lines_round_trip() {
    let line = Line::Unsupported {
        key: crate::results::Key {
            form: "quick".into(),
            row: "tickets-4".into(),
            entities: 1,
            engine: Engine::Lmdb,
            encoding: Encoding::Json,
            repetition: 2,
        },
    };
    let text = serde_json::to_string(&line).expect("plain data");
    assert_eq!(serde_json::from_str::<Line>(&text).expect("as written"), line);
}
