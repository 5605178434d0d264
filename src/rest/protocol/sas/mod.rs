//! Shared access signatures: their text and signature (`token`), and the rights they grant
//! (`grant`).

mod grant;
mod token;

#[cfg(test)]
mod tests;

pub(crate) use grant::{Action, Circumstances, Grant, is_ordered};
pub(crate) use token::{AccountSas, KeyBounds, Sas, ServiceSas, Terms};
