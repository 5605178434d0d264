//! Emits events to subscribers of `tracing`, with the feature `events`. Without the feature nothing
//! is computed.
//!
//! Every event has the target `rowstone`, a name in the field `event`, and the directory in `db`.
//! Fields are computed only if there is a subscriber. Sizes are in bytes, times in microseconds.
//!
//! Not here: the events themselves (`background::events`; of a writer, `delay`).

/// Emits an event; a `String` is displayed unchanged.
#[cfg(feature = "events")]
macro_rules! emit {
    ($level:ident, $name:expr, $env:expr, $($field:ident = $value:expr),* $(,)?) => {
        tracing::event!(
            target: "rowstone",
            tracing::Level::$level,
            event = $name,
            db = %$env.dir.display(),
            $($field = $value,)*
        )
    };
}

/// Without the feature nothing is computed.
#[cfg(not(feature = "events"))]
macro_rules! emit {
    ($level:ident, $name:expr, $env:expr, $($field:ident = $value:expr),* $(,)?) => {{
        let _ = || {
            let _ = $name;
            let _ = $env;
            $(let _ = &$value;)*
        };
    }};
}

pub(in crate::lsm) use emit;
