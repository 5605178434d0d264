//! What users store: keys, typed values, entities, ETags, and every rule about them. Pure: no I/O, no clock.
//!
//! Not here: bytes on disk (`format`), JSON (`wire`), conditions of writes (`table`).

mod seq;

pub use seq::Seq;
