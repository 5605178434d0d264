//! Accepts HTTP connections, reads requests and writes responses.
//!
//! `service` computes the answers, `protocol` defines the format of requests and responses.

pub(super) mod bell;
pub(super) mod body;
pub(super) mod connection_slots;
pub(super) mod fd_limit;
pub(crate) mod limits;
mod log_format;
pub(crate) mod log_writer;
pub(super) mod metrics;
pub(super) mod process;
pub(super) mod request_slots;
pub(super) mod server;
mod signals;
mod stage;
pub(super) mod tls;
pub(super) mod worker_pool;
