//! The server's sockets on one core, in front of a service of the test's own.

#![allow(dead_code)] // Each test uses a part of it.

use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use shards::mesh::Mesh;
use shards::runtime::{Backend, CoresConfig, DiskFactory, Runtime, run_cores};
use skerry::http::Service;
use skerry::net::tls::Tls;
use skerry::net::{Attendance, Attending, CoreNet, Limits};
use storage_engine::io::mem::MemDisk;

/// A core that serves on a port of its own until it is dropped.
pub struct OneCore {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    core: Option<JoinHandle<()>>,
}

impl OneCore {
    /// Serves `service`; over TLS where that is given.
    pub fn serve(service: impl Service + Copy + Send + 'static, limits: Limits, tls: Option<Tls>) -> OneCore {
        Self::serve_among(service, limits, tls, Attendance::of(1).attend())
    }

    /// As [`Self::serve`], as one of several cores.
    pub fn serve_among(
        service: impl Service + Copy + Send + 'static,
        limits: Limits,
        tls: Option<Tls>,
        place: Attending,
    ) -> OneCore {
        Self::serve_on(Backend::IoUring, service, limits, tls, place)
    }

    /// As [`Self::serve_among`], on this kind of executor.
    pub fn serve_on(
        backend: Backend,
        service: impl Service + Copy + Send + 'static,
        limits: Limits,
        tls: Option<Tls>,
        place: Attending,
    ) -> OneCore {
        let (mut listeners, addresses) = skerry::net::bind("127.0.0.1:0", 1).unwrap();
        let listeners = Arc::new(Mutex::new(listeners.pop()));
        let place = Arc::new(Mutex::new(Some(place)));
        let stop = Arc::new(AtomicBool::new(false));
        let core_stop = stop.clone();
        let disk: DiskFactory = Arc::new(|_| Rc::new(MemDisk::default()));
        let config = CoresConfig { backend, cores: Some(1), pin: false, side_threads: 1, ..CoresConfig::new(disk) };
        let cores = run_cores(config, move |runtime: Rc<dyn Runtime>, _: Mesh<(), ()>| {
            let listeners = listeners.lock().unwrap().take().unwrap();
            let place = place.lock().unwrap().take().unwrap();
            let (limits, stop) = (limits.clone(), core_stop.clone());
            let tls = tls.as_ref().map(Tls::for_core);
            async move {
                let net = CoreNet::among(Rc::new(service), limits, &place);
                skerry::net::serve_core(runtime, net, listeners, tls, stop, place).await.unwrap();
            }
        })
        .unwrap();
        let core = std::thread::spawn(move || assert_eq!(cores.join(), []));
        OneCore { address: addresses[0], stop, core: Some(core) }
    }

    /// A connection on which reads wait ten seconds at most.
    pub fn connect(&self) -> TcpStream {
        // Binding and listening are two steps; the first connection of a test may come between them.
        for _ in 0..200 {
            if let Ok(stream) = TcpStream::connect(self.address) {
                stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                return stream;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        panic!("the server does not listen");
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.core.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}
