//! Builds the report as one HTML page, without external resources, for light and dark screens.

use crate::DIFFERENCES;
use crate::figure::{Figure, Grid};
use crate::plot::escape;

const STYLE: &str = "\
:root { color-scheme: light dark; --back: #fff; --ink: #1c1e21; --soft: #5c6570; --rule: #d9dde2;
  --k0: #1f6fb5; --k1: #c2571a; --k2: #2a8a57; --k3: #8a4fb0; --k4: #a87b00; --k5: #b03a5b; --then: #7a7f87; }
@media (prefers-color-scheme: dark) { :root { --back: #15181c; --ink: #e4e7eb; --soft: #9aa4b0;
  --rule: #343b44; --k0: #6db3f2; --k1: #f0965a; --k2: #6cc998; --k3: #c39be0; --k4: #e0b84a;
  --k5: #ec86a3; --then: #a3a9b2; } }
body { background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  max-width: 860px; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid var(--rule); padding-top: 1.5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }
dt { color: var(--soft); } dd { margin: 0; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid var(--rule); }
th:first-child, td:first-child { text-align: left; } th { color: var(--soft); font-weight: 600; }
svg { width: 100%; height: auto; margin: .5rem 0; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg .label { fill: var(--ink); } svg .study-text { fill: var(--then); }
.axis { stroke: var(--soft); fill: none; } .grid { stroke: var(--rule); } .line { fill: none; stroke-width: 2; }
.c0 { stroke: var(--k0); fill: var(--k0); } .c1 { stroke: var(--k1); fill: var(--k1); }
.c2 { stroke: var(--k2); fill: var(--k2); } .c3 { stroke: var(--k3); fill: var(--k3); }
.c4 { stroke: var(--k4); fill: var(--k4); } .c5 { stroke: var(--k5); fill: var(--k5); }
.study { stroke: var(--then); fill: var(--then); stroke-dasharray: 5 4; } path.line { fill: none; }
";

/// Returns the whole page. `facts` are pairs of a name and a value that describe the run.
pub(crate) fn page(facts: &[(&str, String)], figures: &[Figure]) -> String {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>The performance case study of 2010, measured again</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>The performance case study of 2010, measured again</h1>\n\
         <p>In 2010 the Windows Azure Storage team measured Azure Table storage from outside, in its article \
         <cite>How to get most out of Windows Azure Tables</cite>. These are the figures of that study, measured with \
         rowstone on one machine. Numbers of the study are dashed and grey, where its text gives any.</p>\n<dl>\n"
    );
    for (name, value) in facts {
        html.push_str(&format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value)));
    }
    html.push_str("</dl>\n<h2>Differences</h2>\n<ul>\n");
    for difference in DIFFERENCES {
        html.push_str(&format!("<li>{}</li>\n", escape(difference)));
    }
    html.push_str("</ul>\n");
    figures.iter().for_each(|figure| put_figure(&mut html, figure));
    html.push_str("</body>\n</html>\n");
    html
}

fn put_figure(html: &mut String, figure: &Figure) {
    let Figure { number, title, setup, study, here, .. } = figure;
    html.push_str(&format!(
        "<h2 id=\"figure-{number}\">Figure {number}: {}</h2>\n<dl>\n<dt>then</dt><dd>{}</dd>\n\
         <dt>found then</dt><dd>{}</dd>\n<dt>found here</dt><dd>{}</dd>\n</dl>\n",
        escape(title),
        escape(setup),
        escape(study),
        escape(here)
    ));
    for chart in &figure.charts {
        html.push_str(&chart.svg());
    }
    html.push_str("<div class=\"scroll\"><table>\n<tr>");
    for name in &figure.grid.columns {
        html.push_str(&format!("<th>{}</th>", escape(name)));
    }
    html.push_str("</tr>\n");
    for row in &figure.grid.rows {
        html.push_str("<tr>");
        for cell in Grid::cells(row) {
            html.push_str(&format!("<td>{}</td>", escape(&cell)));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
}
