//! Draws bars as inline SVG, one for each engine and encoding, in the colours of the page.

use std::fmt::Write;

use super::summary::{Cell, Entry, count};
use crate::engines::Engine;

const BAR: usize = 18;
const LABEL: f64 = 120.0;
const WIDTH: f64 = 720.0;
const VALUE: f64 = 110.0;
const WRITING: &str = "writing to memory";

/// Draws one bar for each engine and encoding of a row, the best first. A line across each bar
/// shows the spread of the repetitions.
pub fn bars(entry: &Entry) -> String {
    let mut cells: Vec<&Cell> = entry.cells.iter().collect();
    cells.sort_by(|a, b| b.value.total_cmp(&a.value));
    if !entry.row.unit.higher_is_better() {
        cells.reverse();
    }
    let longest = cells.iter().map(|cell| cell.high).fold(f64::MIN_POSITIVE, f64::max);
    let height = cells.len() * BAR + 2;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{}\">",
        super::html::escaped(&entry.title()),
    );
    let scale = (WIDTH - LABEL - VALUE) / longest;
    for (place, cell) in cells.into_iter().enumerate() {
        let (top, middle) = (place * BAR + 2, place * BAR + 13);
        let class = if cell.side.engine == Engine::Rowstone { "ours" } else { "peer" };
        let (length, low, high) = (cell.value * scale, cell.low * scale, cell.high * scale);
        write!(
            svg,
            "<text x=\"{:.0}\" y=\"{middle}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{LABEL}\" y=\"{top}\" width=\"{length:.1}\" height=\"{}\"/>",
            LABEL - 6.0,
            cell.side.name(),
            BAR - 4,
        )
        .expect(WRITING);
        if cell.repetitions > 1 {
            let y = top + (BAR - 4) / 2;
            let (from, to) = (LABEL + low, LABEL + high);
            write!(svg, "<path class=\"spread\" d=\"M{from:.1} {y}H{to:.1}\"/>").expect(WRITING);
        }
        let x = LABEL + high.max(length) + 6.0;
        write!(svg, "<text x=\"{x:.1}\" y=\"{middle}\">{}</text>", count(cell.value))
            .expect(WRITING);
    }
    svg + "</svg>"
}
