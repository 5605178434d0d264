//! Checks that the inherent `impl`s of each of the engine's four parts, such as `Reader`, are in
//! one folder or file of `src/lsm`, called the room of the part.

use super::Offence;
use super::imports::Graph;
use super::source::Source;

/// Each part and its room, which is a folder or a file.
const ROOMS: &[(&str, &str)] = &[
    ("Reader", "src/lsm/read/"),
    ("Writer", "src/lsm/write/"),
    ("Maintenance", "src/lsm/background/"),
    ("Engine", "src/lsm/mod.rs"),
];

pub fn check(sources: &[Source]) -> Vec<Offence> {
    let graph = Graph::new(sources);
    ROOMS.iter().flat_map(|(name, room)| strays(&graph, name, room)).collect()
}

/// Returns the inherent `impl`s of the part `name` that are outside of `room`.
fn strays(graph: &Graph, name: &str, room: &str) -> Vec<Offence> {
    let impls = graph.impls(name).into_iter();
    let of_engine = impls.filter(|(_, _, definition)| definition.starts_with("src/lsm/"));
    let strays = of_engine.filter(|(file, _, _)| !file.starts_with(room));
    strays
        .map(|(file, line, _)| {
            let what = format!("`impl {name}` is outside {room}");
            Offence::new(file, line, "part", what)
        })
        .collect()
}

#[test]
fn methods_of_a_part_outside_its_room_are_offences() {
    let files = [
        ("src/lib.rs", "mod lsm; mod log; mod db;"),
        ("src/lsm/mod.rs", "mod read; mod write;\npub(crate) use self::read::Reader;"),
        ("src/lsm/read/mod.rs", "mod get;\nstruct Reader;\nimpl Reader {}"),
        ("src/lsm/read/get.rs", "use super::Reader;\nimpl<'a> Reader {}\nimpl Drop for Reader {}"),
        ("src/lsm/write/mod.rs", "use super::Reader;\nimpl Drop for Reader {}\nimpl Reader {}"),
        ("src/log/reader.rs", "struct Reader<F>(F);\nimpl<F: Fn() -> u8> Reader<F> {}"),
        ("src/db.rs", "impl crate::lsm::read::Reader {}"),
    ];
    let sources = files.map(|(path, text)| Source::new(path, text));
    let offences = strays(&Graph::new(&sources), "Reader", "src/lsm/read/");
    let found: Vec<String> = offences.iter().map(|offence| offence.to_string()).collect();
    let at = |place: &str| format!("{place}: part: `impl Reader` is outside src/lsm/read/");
    assert_eq!(found, [at("src/db.rs:1"), at("src/lsm/write/mod.rs:3")]);
}
