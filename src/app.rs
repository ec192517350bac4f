//! What the handlers of one core have at hand.

use std::rc::Rc;
use std::sync::Arc;

use shards::runtime::Runtime;
use time::OffsetDateTime;

use crate::api::router::Host;
use crate::auth::KeySet;
use crate::control::ControlHandle;
use crate::options::Options;

/// The server as one core's handlers see it.
pub struct App {
    /// This core: its clock, its tasks, its disk.
    pub runtime: Rc<dyn Runtime>,
    /// The control plane.
    pub control: ControlHandle,
    /// What was set from outside.
    pub options: Arc<Options>,
}

impl Host for App {
    fn keys(&self) -> Arc<KeySet> {
        self.control.state().keys.clone()
    }

    fn now(&self) -> OffsetDateTime {
        shards::timestamp::Timestamp::from_unix(self.runtime.unix_time()).date()
    }

    fn payload_bytes_max(&self) -> u64 {
        self.options.payload_bytes_max
    }
}
