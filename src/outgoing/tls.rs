//! TLS towards others: who is trusted, and the handshake.

use std::cell::RefCell;
use std::sync::Arc;

use futures_rustls::TlsConnector;
use rustls::crypto::ring as crypto;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::ServerName;
use shards::runtime::Runtime;

use super::error::SendError;
use super::sockets::Socket;
use crate::archive::aside;

/// TLS of one core's client. The trusted authorities are read at the first `https` request.
#[derive(Default)]
pub(super) struct Tls {
    config: RefCell<Option<Arc<ClientConfig>>>,
}

impl Tls {
    /// With this set-up instead of the machine's.
    #[cfg(test)]
    pub(super) fn with(config: ClientConfig) -> Self {
        Self { config: RefCell::new(Some(Arc::new(config))) }
    }

    /// Shakes hands with the holder of this name.
    pub(super) async fn connect(
        &self,
        runtime: &dyn Runtime,
        host: &str,
        socket: Box<dyn Socket>,
    ) -> Result<Box<dyn Socket>, SendError> {
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name).map_err(|error| SendError::Tls(error.to_string()))?;
        let config = self.config(runtime).await?;
        let stream = TlsConnector::from(config).connect(name, socket).await;
        Ok(Box::new(stream.map_err(|error| SendError::Tls(error.to_string()))?))
    }

    async fn config(&self, runtime: &dyn Runtime) -> Result<Arc<ClientConfig>, SendError> {
        if let Some(config) = &*self.config.borrow() {
            return Ok(config.clone());
        }
        let made = aside(runtime, || trusting(system_roots())).await;
        let config = made.map_err(|error| SendError::Tls(error.to_string()))?.map_err(SendError::Tls)?;
        let config = Arc::new(config);
        self.config.replace(Some(config.clone()));
        Ok(config)
    }
}

/// The authorities that the machine trusts; where it names none (a bare container), those that browsers trust. Reads files.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

/// TLS that trusts these authorities.
pub(super) fn trusting(roots: RootCertStore) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
