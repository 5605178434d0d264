//! Draws charts as SVG text: lines, steps and grouped bars on linear or logarithmic axes.
//!
//! Invariants
//! * the text is well-formed and self-contained: no scripts, no fonts, no links;
//! * colours are classes (`c0` to `c5`, `study`), which the page defines for light and dark;
//! * every point has a `<title>` with its numbers; numbers that cannot be drawn are omitted.
//!
//! Not here: the page around it (`page`), the numbers (`figures`).

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 84.0;
/// The number of colours. A chart with more series uses the colours again.
const COLOURS: usize = 6;
const TICKS: f64 = 6.0;
const CHAR_WIDTH: f64 = 6.8;

/// A diagram with axes and a legend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chart {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    pub(crate) marks: Vec<Mark>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    Log,
    /// Equal distances between the values that occur; used for bars.
    Groups,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) form: Form,
    /// Whether the numbers are from the study of 2010, not from this run.
    pub(crate) is_study: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Points joined by lines.
    Line,
    /// A line without visible points, for cumulative distributions.
    Steps,
    /// Bars, next to the bars of other series.
    Bars,
    /// Points alone.
    Points,
}

/// A labelled vertical line, for a bound that is known as a single number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    pub(crate) x: f64,
    pub(crate) text: String,
}

/// Maps the numbers of an axis to positions in the chart.
struct Place {
    scale: Scale,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
    groups: Vec<f64>,
}

impl Axis {
    pub(crate) fn new(label: &str, scale: Scale) -> Self {
        Self { label: label.to_owned(), scale }
    }
}

impl Chart {
    pub(crate) fn svg(&self) -> String {
        let xs = self.points().map(|(x, _)| x).chain(self.marks.iter().map(|mark| mark.x));
        let x = Place::new(self.x.scale, xs, LEFT, WIDTH - RIGHT);
        let y = Place::new(self.y.scale, self.points().map(|(_, y)| y), HEIGHT - BOTTOM, TOP);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{} by {}\">\n",
            escape(&self.y.label),
            escape(&self.x.label)
        );
        self.put_axes(&mut svg, &x, &y);
        for (row, mark) in self.marks.iter().filter(|mark| x.can_show(mark.x)).enumerate() {
            let at = x.at(mark.x);
            let end = HEIGHT - BOTTOM;
            put(
                &mut svg,
                format_args!(
                    "<line class=\"study\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{end}\"/>"
                ),
            );
            // Near the right edge, the text is to the left of the line.
            let is_late = at + mark.text.chars().count() as f64 * CHAR_WIDTH > WIDTH - RIGHT;
            let (shift, anchor) = if is_late { (-5.0, "end") } else { (5.0, "start") };
            put(
                &mut svg,
                format_args!(
                    "<text class=\"study-text\" x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                    at + shift,
                    // Puts the text of each mark into a row of its own, because marks may be close
                    // to each other.
                    end - 8.0 - 16.0 * row as f64,
                    escape(&mark.text)
                ),
            );
        }
        let bars = self.series.iter().filter(|series| series.form == Form::Bars).count();
        let mut bar = 0;
        for (number, series) in self.series.iter().enumerate() {
            let class = class(series, number);
            if series.form == Form::Bars {
                self.put_bars(&mut svg, series, &class, (&x, &y), (bar, bars));
                bar += 1;
            } else {
                self.put_line(&mut svg, series, &class, &x, &y);
            }
        }
        self.put_legend(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series.iter().flat_map(|series| series.points.iter().copied())
    }

    fn put_axes(&self, svg: &mut String, x: &Place, y: &Place) {
        let (right, end) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in y.ticks() {
            let at = y.at(tick);
            put(
                svg,
                format_args!(
                    "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                    LEFT - 8.0,
                    at + 4.0,
                    short(tick)
                ),
            );
        }
        for tick in x.ticks() {
            let at = x.at(tick);
            put(
                svg,
                format_args!(
                    "<line class=\"axis\" x1=\"{at:.1}\" y1=\"{end}\" x2=\"{at:.1}\" y2=\"{}\"/>\
                 <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                    end + 5.0,
                    end + 19.0,
                    short(tick)
                ),
            );
        }
        let middle = (TOP + end) / 2.0;
        put(
            svg,
            format_args!(
                "<path class=\"axis\" d=\"M{LEFT} {TOP} V{end} H{right}\"/>\
             <text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text class=\"label\" transform=\"translate(16 {middle}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
                (LEFT + right) / 2.0,
                end + 40.0,
                escape(&self.x.label),
                escape(&self.y.label)
            ),
        );
    }

    fn put_line(&self, svg: &mut String, series: &Series, class: &str, x: &Place, y: &Place) {
        let points = series.points.iter().filter(|(a, b)| x.can_show(*a) && y.can_show(*b));
        let places: Vec<_> = points.map(|(a, b)| (x.at(*a), y.at(*b), *a, *b)).collect();
        if series.form != Form::Points && places.len() > 1 {
            let path: Vec<_> = places.iter().map(|(a, b, ..)| format!("{a:.1} {b:.1}")).collect();
            put(svg, format_args!("<path class=\"line {class}\" d=\"M{}\"/>", path.join(" L")));
        }
        // A distribution has hundreds of steps. Only about 40 of them get a point that shows its
        // numbers on hover.
        let step = if series.form == Form::Steps { places.len().div_ceil(40).max(1) } else { 1 };
        let radius = if series.form == Form::Steps { 2.5 } else { 4.0 };
        for (at_x, at_y, a, b) in places.iter().step_by(step) {
            put(
                svg,
                format_args!(
                    "<circle class=\"{class}\" cx=\"{at_x:.1}\" cy=\"{at_y:.1}\" r=\"{radius}\">\
                 <title>{}</title></circle>",
                    self.title(series, *a, *b)
                ),
            );
        }
    }

    fn put_bars(
        &self,
        svg: &mut String,
        series: &Series,
        class: &str,
        (x, y): (&Place, &Place),
        (number, count): (usize, usize),
    ) {
        let group = (x.to - x.from) / x.groups.len().max(1) as f64;
        let width = group * 0.8 / count.max(1) as f64;
        let end = HEIGHT - BOTTOM;
        for (a, b) in series.points.iter().filter(|(a, b)| x.can_show(*a) && y.can_show(*b)) {
            let left = x.at(*a) - group * 0.4 + width * number as f64;
            let top = y.at(*b).min(end);
            put(
                svg,
                format_args!(
                    "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"><title>{}</title></rect>",
                    (width - 1.0).max(1.0),
                    end - top,
                    self.title(series, *a, *b)
                ),
            );
        }
    }

    fn put_legend(&self, svg: &mut String) {
        let (mut left, mut row) = (LEFT, HEIGHT - 24.0);
        for (number, series) in self.series.iter().enumerate() {
            let width = 30.0 + series.name.chars().count() as f64 * CHAR_WIDTH;
            if left > LEFT && left + width > WIDTH {
                (left, row) = (LEFT, row + 18.0);
            }
            let class = class(series, number);
            put(
                svg,
                format_args!(
                    "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"12\" height=\"10\"/>\
                 <text x=\"{:.1}\" y=\"{row:.1}\">{}</text>",
                    row - 9.0,
                    left + 18.0,
                    escape(&series.name)
                ),
            );
            left += width;
        }
    }

    fn title(&self, series: &Series, x: f64, y: f64) -> String {
        let (x_label, y_label) = (escape(&self.x.label), escape(&self.y.label));
        let (x, y) = (exact(x), exact(y));
        format!("{}\n{x_label}: {x}\n{y_label}: {y}", escape(&series.name))
    }
}

impl Place {
    fn new(scale: Scale, numbers: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let drawable = |number: &f64| number.is_finite() && (scale != Scale::Log || *number > 0.0);
        let mut groups: Vec<f64> = numbers.filter(drawable).collect();
        groups.sort_by(f64::total_cmp);
        groups.dedup();
        let (least, most) = match (groups.first(), groups.last()) {
            (Some(least), Some(most)) => (*least, *most),
            _ => (1.0, 10.0),
        };
        let (least, most) = match scale {
            Scale::Linear => (0.0, if most > 0.0 { most * 1.05 } else { 1.0 }),
            Scale::Groups => (least, most),
            Scale::Log if most / least < 10.0 => (least / 2.0, most * 2.0),
            Scale::Log => (least / 1.25, most * 1.25),
        };
        Self { scale, least, most, from, to, groups }
    }

    fn can_show(&self, number: f64) -> bool {
        number.is_finite() && (self.scale != Scale::Log || number > 0.0)
    }

    fn at(&self, number: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (number - self.least) / (self.most - self.least),
            Scale::Log => (number / self.least).ln() / (self.most / self.least).ln(),
            Scale::Groups => {
                let place = self.groups.iter().position(|group| *group >= number).unwrap_or(0);
                (place as f64 + 0.5) / self.groups.len().max(1) as f64
            }
        };
        self.from + (self.to - self.from) * part
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Groups => self.groups.clone(),
            Scale::Linear => {
                let step = round_up(self.most / TICKS);
                (0..=(self.most / step) as u32).map(|number| f64::from(number) * step).collect()
            }
            Scale::Log => {
                let decades = (self.most / self.least).log10();
                let factors: &[f64] = if decades > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                let first = self.least.log10().floor() as i32;
                let powers = first..=self.most.log10().ceil() as i32;
                let all = powers
                    .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
                all.filter(|tick| (self.least..=self.most).contains(tick)).collect()
            }
        }
    }
}

/// Escapes text for XML, also in an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Formats a number with three significant digits, such as `0.0123` or `45.6`. Integers of at least
/// 100 keep all digits: `12,300`.
pub(crate) fn exact(number: f64) -> String {
    let digits = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    if !number.is_finite() {
        return "–".to_owned();
    }
    match 2 - digits {
        decimals @ 1.. if number.fract() != 0.0 => {
            format!("{number:.*}", decimals.min(9) as usize)
        }
        _ => with_thousands(number.round().max(0.0) as u64),
    }
}

fn with_thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number for the labels of an axis, such as `20k`.
fn short(number: f64) -> String {
    let (scaled, unit) = match number {
        1e9.. => (number / 1e9, "G"),
        1e6.. => (number / 1e6, "M"),
        1e4.. => (number / 1e3, "k"),
        _ => (number, ""),
    };
    // Rounds away the floating-point error.
    format!("{}{unit}", (scaled * 1e6).round() / 1e6)
}

/// Rounds up to the next number of the sequence 1, 2, 5, 10, 20, 50, …
fn round_up(number: f64) -> f64 {
    let power = 10f64.powf(number.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors.map(|factor| factor * power).into_iter().find(|step| *step >= number).unwrap_or(power)
}

fn class(series: &Series, number: usize) -> String {
    if series.is_study { "study".to_owned() } else { format!("c{}", number % COLOURS) }
}

fn put(svg: &mut String, element: std::fmt::Arguments<'_>) {
    let written = writeln!(svg, "{element}");
    debug_assert!(written.is_ok(), "a string takes any text");
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn chart(scales: (Scale, Scale), form: Form, points: &[(f64, f64)]) -> Chart {
        let (name, points) = ("<a> & \"b\"".to_owned(), points.to_vec());
        Chart {
            x: Axis::new("threads", scales.0),
            y: Axis::new("entities/s", scales.1),
            series: vec![Series { name, points, form, is_study: false }],
            marks: vec![Mark { x: 40.0, text: "most".to_owned() }],
        }
    }

    /// Asserts that XML elements are nested correctly: each opened element is closed, innermost
    /// first.
    #[track_caller]
    pub(crate) fn check_nesting(text: &str) {
        let mut open = Vec::new();
        for tag in text.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').expect("an open tag");
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) => assert_eq!(open.pop(), Some(name), "{text}"),
                (false, true) => {}
                (false, false) => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn every_form_is_well_formed_and_within_the_picture() {
        let points = [(1.0, 3.0), (20.0, 500.0), (100.0, 90_000.0)];
        for scale in [Scale::Linear, Scale::Log] {
            for form in [Form::Line, Form::Steps, Form::Bars, Form::Points] {
                let x = if form == Form::Bars { Scale::Groups } else { scale };
                let svg = chart((x, scale), form, &points).svg();
                check_nesting(&svg);
                assert!(svg.contains("&lt;a&gt; &amp; &quot;b&quot;"), "{svg}");
                assert!(svg.contains("entities/s: 90,000</title>"), "{svg}");
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn numbers_that_cannot_be_drawn_are_omitted() {
        let points = [(0.0, 0.0), (f64::NAN, 1.0), (5.0, f64::INFINITY), (10.0, 7.0)];
        let svg = chart((Scale::Log, Scale::Log), Form::Line, &points).svg();
        assert_eq!(svg.matches("<circle").count(), 1, "{svg}");
        let empty = chart((Scale::Linear, Scale::Log), Form::Line, &[]).svg();
        check_nesting(&empty);
        assert!(!empty.contains("NaN"), "{empty}");
    }

    #[test]
    fn places_ascend_with_numbers_on_every_scale() {
        for scale in [Scale::Linear, Scale::Log, Scale::Groups] {
            let place = Place::new(scale, [1.0, 10.0, 1_000.0].into_iter(), 0.0, 100.0);
            let at = [1.0, 10.0, 1_000.0].map(|number| place.at(number));
            assert!(at[0] < at[1] && at[1] < at[2], "{scale:?} {at:?}");
            assert!(at.iter().all(|at| (0.0..=100.0).contains(at)), "{scale:?} {at:?}");
            assert!(place.ticks().len() >= 3, "{scale:?} {:?}", place.ticks());
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.0, 0.01234, 4.567, 45.67, 456.7].map(exact),
            ["0", "0.0123", "4.57", "45.7", "457"]
        );
        assert_eq!(
            (exact(12_345.6), exact(7.0), exact(f64::NAN)),
            ("12,346".into(), "7".into(), "–".into())
        );
        assert_eq!([0.1, 500.0, 20_000.0, 3e6].map(short), ["0.1", "500", "20k", "3M"]);
        assert_eq!([0.7, 1.0, 23.0, 60.0].map(round_up), [1.0, 1.0, 50.0, 100.0]);
    }
}
