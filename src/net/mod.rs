//! Connections: listening sockets, one loop per connection, deadlines, TLS, and graceful shutdown.
//!
//! Only `listener` and `start` name the executor. The connection loop runs over anything that reads and writes, and its clock is
//! driven from outside, so tests control both.

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
