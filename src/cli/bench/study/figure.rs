//! A figure of the study: what was done, what was found then, what is found here; as a chart, as a table and as JSON.

use std::io::Write;

use super::super::histogram::Histogram;
use super::super::plot::{Axis, Chart, Form, Scale, Series, exact};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::{Format, Output, write_cells};
use crate::wire::json::Object;

/// One figure, measured again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    pub(super) number: u32,
    pub(super) title: &'static str,
    /// How the study did it.
    pub(super) setup: &'static str,
    /// What the study found.
    pub(super) study: &'static str,
    /// What is found here, in a sentence.
    pub(super) here: String,
    pub(super) charts: Vec<Chart>,
    pub(super) grid: Grid,
}

/// Numbers in rows and columns; NaN where there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Grid {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(String, Vec<f64>)>,
}

/// What is drawn of a distribution.
const CURVE_POINTS: u32 = 400;

impl Grid {
    /// A row for each place on the x axis, a column for each series.
    pub(super) fn of(x: &str, series: &[Series]) -> Self {
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

    /// A row for each distribution, in milliseconds.
    pub(super) fn of_times(times: &[(&str, &Histogram)]) -> Self {
        let percents = [50.0, 75.0, 99.0, 99.9, 100.0];
        let names = ["milliseconds", "p50", "p75", "p99", "p99.9", "max", "calls"];
        let row = |(name, times): &(&str, &Histogram)| {
            let mut cells: Vec<_> =
                percents.iter().map(|percent| millis(times.percentile(*percent))).collect();
            cells.push(times.count() as f64);
            ((*name).to_owned(), cells)
        };
        Self { columns: names.map(str::to_owned).to_vec(), rows: times.iter().map(row).collect() }
    }

    /// The texts of a row.
    pub(super) fn cells(row: &(String, Vec<f64>)) -> Vec<String> {
        std::iter::once(row.0.clone()).chain(row.1.iter().map(|number| exact(*number))).collect()
    }
}

impl Figure {
    pub(super) fn print(&self, output: &mut Output) -> Outcome {
        let Self { number, title, .. } = self;
        writeln!(output, "\nFigure {number}: {title}").map_err(Failure::output)?;
        let rows = self.grid.rows.iter().map(Grid::cells).collect();
        let right = (0..self.grid.columns.len()).map(|column| column > 0).collect();
        write_cells(output, self.grid.columns.clone(), rows, right, Format::Table)?;
        writeln!(output, "2010: {}\nhere: {}", self.study, self.here).map_err(Failure::output)
    }

    pub(super) fn json(&self) -> Vec<u8> {
        let mut line = Vec::new();
        let mut object = Object::begin(&mut line);
        object.raw("figure", self.number);
        object.text("title", self.title);
        object.texts("columns", self.grid.columns.iter());
        let number = |number: &f64| match number.is_finite() {
            true => format!("{number}"),
            false => "null".to_owned(),
        };
        let rows = self.grid.rows.iter().map(|(name, cells)| {
            let cells: Vec<_> = cells.iter().map(number).collect();
            format!("[\"{}\",{}]", name.replace('"', ""), cells.join(","))
        });
        object.raw("rows", format_args!("[{}]", rows.collect::<Vec<_>>().join(",")));
        object.text("study", self.study);
        object.text("here", &self.here);
        object.end();
        line.push(b'\n');
        line
    }
}

/// Points joined by a line.
pub(super) fn line(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), points, form: Form::Line, is_study: false }
}

pub(super) fn bars(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), points, form: Form::Bars, is_study: false }
}

/// Numbers of the study.
pub(super) fn then(name: &str, points: &[(f64, f64)]) -> Series {
    let name = format!("2010: {name}");
    Series { name, points: points.to_vec(), form: Form::Points, is_study: true }
}

/// Which percentage of the calls ended within how many milliseconds.
pub(super) fn distribution(name: &str, times: &Histogram) -> Series {
    let mut points: Vec<(f64, f64)> = (1..=CURVE_POINTS)
        .map(|step| f64::from(step) * 100.0 / f64::from(CURVE_POINTS))
        .map(|percent| (millis(times.percentile(percent)), percent))
        .collect();
    points.retain(|(time, _)| *time > 0.0);
    Series { name: name.to_owned(), points, form: Form::Steps, is_study: false }
}

pub(super) fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// A chart of `series` without marks.
pub(super) fn chart(x: (&str, Scale), y: (&str, Scale), series: Vec<Series>) -> Chart {
    let marks = Vec::new();
    Chart { x: Axis::new(x.0, x.1), y: Axis::new(y.0, y.1), series, marks }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_grid_has_a_row_for_each_place_and_gaps_where_nothing_is() {
        let series = [line("here", vec![(1.0, 10.0), (2.0, 20.0)]), then("most", &[(2.0, 5.0)])];
        let grid = Grid::of("threads", &series);
        assert_eq!(grid.columns, ["threads", "here", "2010: most"]);
        assert_eq!(Grid::cells(&grid.rows[0]), ["1", "10", "–"]);
        assert_eq!(Grid::cells(&grid.rows[1]), ["2", "20", "5"]);
    }

    #[test]
    fn a_distribution_ascends_to_a_hundred_percent() {
        let mut times = Histogram::default();
        (1..=1_000).for_each(|millis| times.note(Duration::from_millis(millis)));
        let points = distribution("", &times).points;
        assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1));
        assert_eq!(points.last(), Some(&(1_000.0, 100.0)));
        assert_eq!(Grid::of_times(&[("GET", &times)]).rows[0].1[4..], [1_000.0, 1_000.0]);
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
        let text = String::from_utf8(figure.json()).unwrap();
        assert!(text.contains(r#""rows":[["1",2.5,null],["3",null,4]]"#), "{text}");
    }
}
