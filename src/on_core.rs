//! Runs a test on a real executor, for modules whose tests need one.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use futures_util::future::LocalBoxFuture;
use shards::mesh::Mesh;
use shards::runtime::{CoresConfig, Runtime, run_cores};
use storage_engine::io::mem::MemDisk;

/// Runs `test` on an executor.
pub(crate) fn on_core(test: impl FnOnce(Rc<dyn Runtime>) -> LocalBoxFuture<'static, ()> + Send + 'static) {
    let mut config = CoresConfig::new(Arc::new(|_| Rc::new(MemDisk::default())));
    (config.cores, config.pin) = (Some(1), false);
    let test = Arc::new(Mutex::new(Some(test)));
    let start = move |runtime: Rc<dyn Runtime>, _: Mesh<(), ()>| {
        let test = test.lock().unwrap().take().expect("there is one core");
        test(runtime)
    };
    assert_eq!(run_cores(config, start).unwrap().join(), []);
}
