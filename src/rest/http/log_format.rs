//! Formats log events as short lines for a terminal.
//!
//! Invariant: an event takes one line without control characters, so that no client controls the
//! terminal.
//!
//! Not here: the lines elsewhere, which are JSON, and their queue (`log_writer`).

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::codec::printable::without_control;

/// The format of lines for people: `04:05:06Z GET /acme/people() 200 1.2 ms`, or for an event other
/// than a request `04:05:06Z WARN a connection was not accepted error=…`.
pub(super) struct ForPeople;

/// The fields of an event, with their values as text.
#[derive(Default)]
struct Fields(Vec<(&'static str, String)>);

impl<S, N> FormatEvent<S, N> for ForPeople
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut now = String::new();
        SystemTime.format_time(&mut Writer::new(&mut now))?;
        // The time of day in `2024-02-03T04:05:06.123456Z`.
        write!(out, "{}Z", now.get(11..19).unwrap_or_default())?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = *event.metadata().level();
        if level != Level::INFO {
            write!(out, " {level}")?;
        }
        fields.put(&mut out)?;
        writeln!(out)
    }
}

impl Fields {
    fn put(&self, out: &mut Writer<'_>) -> fmt::Result {
        let get = |name| self.0.iter().find(|(field, _)| *field == name).map(|(_, text)| &**text);
        if let (Some(method), Some(path), Some(status)) =
            (get("method"), get("path"), get("status"))
        {
            let texts = [method, path, status, get("code").unwrap_or_default()];
            texts.into_iter().try_for_each(|text| put_plain(out, text))?;
            let micros: u32 = get("micros").and_then(|micros| micros.parse().ok()).unwrap_or(0);
            write!(out, " {:.1} ms", f64::from(micros) / 1000.0)?;
            return put_plain(out, get("misbehaved").unwrap_or_default());
        }
        put_plain(out, get("message").unwrap_or_default())?;
        let is_field = |(name, text): &&(_, String)| *name != "message" && !text.is_empty();
        for (name, text) in self.0.iter().filter(is_field) {
            put_plain(out, &format!("{name}={text}"))?;
        }
        Ok(())
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.name(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name(), value.to_owned()));
    }
}

/// Appends a space and `text`, with its control characters escaped, if there is any text.
fn put_plain(out: &mut Writer<'_>, text: &str) -> fmt::Result {
    match text {
        "" => Ok(()),
        text => write!(out, " {}", without_control(text)),
    }
}
