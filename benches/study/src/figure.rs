//! Defines a figure of the study of 2010 that this program measures again: the set-up, the findings
//! of the study and of this run, and the numbers as charts, as a table and as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::clients::Latencies;
use crate::plot::{Axis, Chart, Form, Scale, Series, exact};

/// A figure of the study, with the numbers that this run measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) number: u32,
    pub(crate) title: &'static str,
    /// The set-up of the measurement in the study.
    pub(crate) setup: &'static str,
    /// The finding of the study.
    pub(crate) study: &'static str,
    /// The finding of this run.
    pub(crate) here: String,
    pub(crate) charts: Vec<Chart>,
    pub(crate) grid: Grid,
}

/// Numbers in rows and columns; NaN is an empty cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Grid {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<(String, Vec<f64>)>,
}

/// The number of points that draw the curve of a distribution.
const CURVE_POINTS: u32 = 400;

impl Grid {
    /// Returns a grid with a row for each x value and a column for each series.
    pub(crate) fn of(x: &str, series: &[Series]) -> Self {
        let mut places: Vec<f64> =
            series.iter().flat_map(|series| series.points.iter().map(|(x, _)| *x)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let cell = |series: &Series, x: f64| {
            series.points.iter().find(|(at, _)| *at == x).map_or(f64::NAN, |(_, y)| *y)
        };
        let row = |x: &f64| (exact(*x), series.iter().map(|series| cell(series, *x)).collect());
        let names = series.iter().map(|series| series.name.clone());
        let columns = std::iter::once(x.to_owned()).chain(names).collect();
        Self { columns, rows: places.iter().map(row).collect() }
    }

    /// Returns a grid with a row for each distribution, in milliseconds.
    pub(crate) fn of_times(times: &[(&str, &Latencies)]) -> Self {
        let percents = [50.0, 75.0, 99.0, 99.9, 100.0];
        let names = ["milliseconds", "p50", "p75", "p99", "p99.9", "max", "calls"];
        let row = |(name, times): &(&str, &Latencies)| {
            let mut cells: Vec<_> =
                percents.iter().map(|percent| millis(times.percentile(*percent))).collect();
            cells.push(times.count() as f64);
            ((*name).to_owned(), cells)
        };
        Self { columns: names.map(str::to_owned).to_vec(), rows: times.iter().map(row).collect() }
    }

    /// Returns the cells of a row as text, with its name first.
    pub(crate) fn cells(row: &(String, Vec<f64>)) -> Vec<String> {
        std::iter::once(row.0.clone()).chain(row.1.iter().map(|number| exact(*number))).collect()
    }
}

impl Figure {
    /// Prints the title, the table, and below it the findings of the study and of this run.
    pub(crate) fn print(&self, output: &mut dyn Write) -> io::Result<()> {
        writeln!(output, "\nFigure {}: {}", self.number, self.title)?;
        let Grid { columns, rows } = &self.grid;
        let rows = std::iter::once(columns.clone()).chain(rows.iter().map(Grid::cells));
        let rows: Vec<Vec<String>> = rows.collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<_> = (0..columns.len()).map(|column| width(column).unwrap_or(0)).collect();
        for row in &rows {
            write!(output, "{:<1$}", row[0], widths[0])?;
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                write!(output, "  {cell:>width$}")?;
            }
            writeln!(output)?;
        }
        writeln!(output, "2010: {}\nhere: {}", self.study, self.here)
    }

    /// Returns the figure as JSON; NaN becomes null.
    pub(crate) fn json(&self) -> Value {
        let rows = self.grid.rows.iter().map(|(name, cells)| {
            let cells = cells.iter().map(|cell| Value::from(*cell));
            std::iter::once(Value::from(&**name)).chain(cells).collect()
        });
        json!({
            "figure": self.number,
            "title": self.title,
            "columns": self.grid.columns,
            "rows": rows.collect::<Vec<Value>>(),
            "study": self.study,
            "here": self.here,
        })
    }
}

/// Returns a series that is drawn as points joined by lines.
pub(crate) fn line(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), points, form: Form::Line, is_study: false }
}

pub(crate) fn bars(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), points, form: Form::Bars, is_study: false }
}

/// Returns a series of numbers from the study of 2010.
pub(crate) fn then(name: &str, points: &[(f64, f64)]) -> Series {
    let name = format!("2010: {name}");
    Series { name, points: points.to_vec(), form: Form::Points, is_study: true }
}

/// Returns the cumulative distribution of `times`: for each latency in milliseconds, the percentage
/// of calls that did not exceed it.
pub(crate) fn distribution(name: &str, times: &Latencies) -> Series {
    let mut points: Vec<(f64, f64)> = (1..=CURVE_POINTS)
        .map(|step| f64::from(step) * 100.0 / f64::from(CURVE_POINTS))
        .map(|percent| (millis(times.percentile(percent)), percent))
        .collect();
    points.retain(|(time, _)| *time > 0.0);
    Series { name: name.to_owned(), points, form: Form::Steps, is_study: false }
}

pub(crate) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// Returns a chart of `series` without marks.
pub(crate) fn chart(x: (&str, Scale), y: (&str, Scale), series: Vec<Series>) -> Chart {
    let marks = Vec::new();
    Chart { x: Axis::new(x.0, x.1), y: Axis::new(y.0, y.1), series, marks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_grid_has_a_row_for_each_x_and_gaps_where_a_series_has_no_point() {
        let series = [line("here", vec![(1.0, 10.0), (2.0, 20.0)]), then("most", &[(2.0, 5.0)])];
        let grid = Grid::of("threads", &series);
        assert_eq!(grid.columns, ["threads", "here", "2010: most"]);
        assert_eq!(Grid::cells(&grid.rows[0]), ["1", "10", "–"]);
        assert_eq!(Grid::cells(&grid.rows[1]), ["2", "20", "5"]);
    }

    #[test]
    fn a_distribution_ascends_to_a_hundred_percent() {
        let mut times = Latencies::default();
        (1..=1_000).for_each(|millis| times.note(Duration::from_millis(millis)));
        let points = distribution("", &times).points;
        assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1));
        let (longest, percent) = points[points.len() - 1];
        assert!((1_000.0..1_001.0).contains(&longest) && percent == 100.0, "{longest} {percent}");
        assert_eq!(Grid::of_times(&[("GET", &times)]).rows[0].1[5], 1_000.0);
    }

    #[test]
    fn json_has_null_for_a_gap() {
        let figure = Figure {
            number: 8,
            title: "t",
            setup: "s",
            study: "then",
            here: "now".to_owned(),
            charts: Vec::new(),
            grid: Grid::of("x", &[line("a", vec![(1.0, 2.5)]), then("b", &[(3.0, 4.0)])]),
        };
        assert_eq!(figure.json()["rows"], json!([["1", 2.5, null], ["3", null, 4.0]]));
    }
}
