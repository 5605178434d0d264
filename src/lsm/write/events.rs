//! Emits events to subscribers of `tracing`, if the feature `events` is enabled.
//!
//! Every event has the target `rowstone`, its name in the field `event`, and the database directory
//! in the field `db`. Fields are computed only if there is a subscriber. Sizes are in bytes, times
//! in microseconds.
//!
//! Not here: the calls that emit single events. They are in `background::events` and, for the event
//! `stalled`, in `delay`.

/// Emits an event. A `String` field is displayed without quotes or escapes.
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

/// Does nothing without the feature, and evaluates no field.
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
