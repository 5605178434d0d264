//! Tests of access to a Table service: `lost` over answers that a test lists, `hostile` over
//! sockets.

mod hostile;
mod lost;
