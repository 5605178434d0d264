//! What a run came to.

use std::io;
use std::path::Path;

use crate::results::Results;

pub fn write(results: &Results, _dir: &Path) -> io::Result<()> {
    for (key, figures) in &results.figures {
        println!(
            "{} {} {:?} {}: {:.1}",
            key.row,
            key.engine.name(),
            key.encoding,
            key.entities,
            figures.value
        );
    }
    Ok(())
}
