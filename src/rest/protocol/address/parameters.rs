//! Parses and writes query strings: query options, continuation tokens, and the fields of shared
//! access signatures.
//!
//! Invariant: a known parameter is stored once, and unknown ones are dropped.

use std::collections::HashSet;

use super::encoding::{decode, put_encoded};
use crate::error::Code;
use crate::rest::protocol::fault::Fault;

/// The known parameters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    given: Vec<(Parameter, String)>,
}

/// The maximum number of names in a `$select`.
const SELECT_MAX: usize = 255;
/// The maximum number of entities in a page, and thus the maximum of `$top`.
const TOP_MAX: usize = 1_000;
/// The maximum of the parameter `timeout`, in seconds.
const TIMEOUT_MAX: u64 = 30;

macro_rules! names {
    ($($name:ident $text:literal)*) => {
        /// The name of a parameter; [`Parameters`] holds its value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Parameter {
            $($name,)*
        }

        impl Parameter {
            #[cfg(test)]
            pub(super) const ALL: &[Parameter] = &[$(Parameter::$name,)*];

            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Parameter::$name => $text,)* }
            }

            fn of(text: &str) -> Option<Parameter> {
                match text { $($text => Some(Parameter::$name),)* _ => None }
            }
        }
    };
}

names! {
    Filter "$filter"
    Select "$select"
    Top "$top"
    Format "$format"
    NextPartitionKey "NextPartitionKey"
    NextRowKey "NextRowKey"
    NextTableName "NextTableName"
    Timeout "timeout"
    Comp "comp"
    Restype "restype"
    ApiVersion "api-version"
    SasVersion "sv"
    SasSignature "sig"
    SasTable "tn"
    SasPermissions "sp"
    SasStart "st"
    SasExpiry "se"
    SasPolicy "si"
    SasAddresses "sip"
    SasProtocols "spr"
    SasServices "ss"
    SasResourceTypes "srt"
    SasEncryptionScope "ses"
    SasStartPartition "spk"
    SasStartRow "srk"
    SasEndPartition "epk"
    SasEndRow "erk"
}

impl Parameters {
    /// Reads a query string without its question mark.
    pub(crate) fn read(query: &str) -> Result<Self, Fault> {
        let mut parameters = Parameters::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name, true)?;
            match Parameter::of(&name) {
                Some(known) if parameters.get(known).is_some() => {
                    return Err(Fault::invalid(format!(
                        "Query parameter '{name}' is specified, but it should be specified exactly once."
                    )));
                }
                Some(known) => parameters.given.push((known, decode(value, true)?)),
                None if name.starts_with('$') => return Err(Code::NotImplemented.into()),
                None => {}
            }
        }
        Ok(parameters)
    }

    /// Returns the parameter as given, with its escapes resolved.
    pub(crate) fn get(&self, name: Parameter) -> Option<&str> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }

    /// Returns `$filter`, unless it is empty.
    pub(crate) fn filter(&self) -> Option<&str> {
        self.get(Parameter::Filter).filter(|filter| !filter.trim().is_empty())
    }

    /// Returns the names in `$select`; `None` if it is absent, which selects all properties.
    pub(crate) fn select(&self) -> Result<Option<Vec<String>>, Fault> {
        let Some(select) = self.get(Parameter::Select).filter(|select| !select.trim().is_empty())
        else {
            return Ok(None);
        };
        let names: Vec<_> = select.split(',').take(SELECT_MAX + 1).map(str::trim).collect();
        if names.len() > SELECT_MAX || names.iter().any(|name| name.is_empty()) {
            return Err(Code::InvalidInput.into());
        }
        if names.contains(&"*") {
            return Ok(None);
        }
        // Repeated names are removed here, once for the query, rather than for each entity.
        let mut met = HashSet::new();
        let names = names.into_iter().filter(|name| met.insert(*name));
        Ok(Some(names.map(str::to_owned).collect()))
    }

    /// Returns `$top`, from 0 to 1,000.
    pub(crate) fn top(&self) -> Result<Option<usize>, Fault> {
        let Some(top) = self.get(Parameter::Top) else { return Ok(None) };
        let is_number = !top.is_empty() && top.bytes().all(|byte| byte.is_ascii_digit());
        let top = top.parse().ok().filter(|top| is_number && *top <= TOP_MAX);
        top.map(Some).ok_or_else(|| Code::InvalidInput.into())
    }

    /// Returns the parameter `timeout` in seconds. The maximum, 30, is also the default.
    pub(crate) fn timeout(&self) -> Result<u64, Fault> {
        let Some(text) = self.get(Parameter::Timeout) else { return Ok(TIMEOUT_MAX) };
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number too long to parse counts as the maximum.
        match text.parse().unwrap_or(TIMEOUT_MAX) {
            seconds @ 1.. if is_number => Ok(seconds.min(TIMEOUT_MAX)),
            _ => Err(Fault::parameter("timeout", text, "Not a number of seconds above 0.")),
        }
    }
}

/// Returns a parameter that Azure Table storage does not have and [`Parameters`] therefore drops.
#[cfg(feature = "rest")]
pub(crate) fn extra_parameter(query: &str, name: &str) -> Result<Option<String>, Fault> {
    let mut values = query.split('&').filter_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let value = values.next().map(|value| decode(value, true)).transpose()?;
    match values.next() {
        Some(_) => Err(Fault::invalid(format!("Query parameter '{name}' is there twice."))),
        None => Ok(value),
    }
}

/// Appends `?name=value&…`, escaped; nothing if there are no parameters.
pub(crate) fn put_query<'a>(out: &mut String, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (i, (name, value)) in pairs.into_iter().enumerate() {
        out.push(if i == 0 { '?' } else { '&' });
        // A dollar sign is legal in a query string, and clients write it unescaped.
        match name.strip_prefix('$') {
            Some(rest) => {
                out.push('$');
                put_encoded(out, rest);
            }
            None => put_encoded(out, name),
        }
        out.push('=');
        put_encoded(out, value);
    }
}
