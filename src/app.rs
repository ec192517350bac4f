//! What the handlers of one core have at hand.

use std::rc::Rc;
use std::sync::Arc;

use shards::runtime::Runtime;
use time::OffsetDateTime;

use crate::api::reader::Reader;
use crate::api::router::Host;
use crate::api::search::room::SearchRoom;
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
    /// Documents and searches.
    pub reader: Rc<dyn Reader>,
    /// How many searches run and wait here.
    pub search_room: SearchRoom,
}

impl App {
    /// What one core's handlers need.
    pub fn new(
        runtime: Rc<dyn Runtime>,
        control: ControlHandle,
        options: Arc<Options>,
        reader: Rc<dyn Reader>,
    ) -> Self {
        let search_room = SearchRoom::new(options.searches_per_core, options.search_queue_max, runtime.core_count());
        Self { runtime, control, options, reader, search_room }
    }
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
