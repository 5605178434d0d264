//! How an event is emitted to subscribers of `tracing`, with the feature `events`; without it nothing is computed.
//!
//! Every event has the target `rowstone`, a name in the field `event`, and the directory in `db`. Fields are computed only
//! if there is a subscriber. Sizes are bytes, times microseconds.
//!
//! Not here: the events themselves (`background::events`; of a writer, `delay`).

/// Tells subscribers; a `String` is shown as it is.
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
