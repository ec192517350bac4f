//! Connections: listening sockets, one loop for each connection, deadlines, TLS, and the orderly stop.
//!
//! Only `listener` and `start` name the executor; the loop of a connection runs over anything that reads and writes, and
//! its clock is moved from outside, so that tests drive both.

pub mod connection;
pub mod core;
pub mod drain;
pub mod listener;
mod respond;
pub mod tls;

pub use self::connection::serve;
pub use self::core::{CoreNet, Limits};
pub use self::drain::{Attendance, Attending, StopSignal};
pub use self::listener::{BindError, CoreListeners, bind, serve_core};
