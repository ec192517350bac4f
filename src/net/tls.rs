//! TLS by rustls on the core's own executor.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_lite::io::{AsyncRead, AsyncWrite};
use futures_rustls::TlsAcceptor;
use futures_rustls::server::TlsStream;
use futures_util::future::{Future, poll_fn};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring as crypto;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::core::WatchGuard;

/// Sessions that a core keeps for resumption.
const SESSIONS_MAX: usize = 256;

/// What the command line says about TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// PEM file of the certificate chain. TLS is on when this and the key are given.
    pub cert_path: Option<PathBuf>,
    /// PEM file of the private key: PKCS#8 is preferred, then RSA, then EC.
    pub key_path: Option<PathBuf>,
    /// PEM file of the CA certificates for client certificates.
    pub auth_path: Option<PathBuf>,
    /// Whether clients must have a certificate.
    pub require_auth: bool,
    /// DER file of an OCSP answer to staple.
    pub ocsp_path: Option<PathBuf>,
    /// Whether sessions may be resumed from the server's memory.
    pub resumption: bool,
    /// Whether sessions may be resumed from tickets.
    pub tickets: bool,
}

impl TlsOptions {
    /// What has no effect since another option is missing, for the log. The start goes on: set-ups rely on that one of them alone
    /// changes nothing.
    fn given_by_half(&self) -> Option<String> {
        let missing = match (&self.cert_path, &self.key_path) {
            (Some(_), Some(_)) if self.require_auth && self.auth_path.is_none() => {
                let text =
                    "--ssl-require-auth has no effect without --ssl-auth-path: clients do not need a certificate";
                return Some(text.to_owned());
            }
            (Some(_), Some(_)) => return None,
            (Some(_), None) => "--ssl-key-path",
            (None, Some(_)) => "--ssl-cert-path",
            (None, None) => "--ssl-cert-path and --ssl-key-path",
        };
        let given = [
            (self.cert_path.is_some(), "--ssl-cert-path"),
            (self.key_path.is_some(), "--ssl-key-path"),
            (self.auth_path.is_some(), "--ssl-auth-path"),
            (self.require_auth, "--ssl-require-auth"),
            (self.ocsp_path.is_some(), "--ssl-ocsp-path"),
            (self.resumption, "--ssl-resumption"),
            (self.tickets, "--ssl-tickets"),
        ];
        let (_, first) = given.into_iter().find(|(is_given, _)| *is_given)?;
        Some(format!("{first} has no effect without {missing}: TLS is off, all traffic is unencrypted"))
    }
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or has not the expected content.
    #[error("cannot read {what} from `{}` ({reason}); check `{flag}`", path.display())]
    File {
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// The flag that names the file.
        flag: &'static str,
        /// What went wrong.
        reason: String,
    },
    /// The parts do not fit together.
    #[error("the TLS files do not fit together ({0}); check `--ssl-cert-path` and `--ssl-key-path`")]
    Config(#[from] rustls::Error),
}

/// TLS as all cores share it: certificates and the key of tickets, so that a ticket of one core opens on another.
#[derive(Clone)]
pub struct Tls {
    config: ServerConfig,
    resumption: bool,
}

/// TLS of one core, with sessions of its own.
#[derive(Clone)]
pub struct CoreTls {
    acceptor: TlsAcceptor,
}

impl Tls {
    /// Reads the files and checks that they fit. `None` when there is no certificate or no key: plain HTTP.
    pub fn load(options: &TlsOptions) -> Result<Option<Tls>, TlsError> {
        if let Some(warning) = options.given_by_half() {
            tracing::warn!("{warning}");
        }
        let (cert_path, key_path) = match (&options.cert_path, &options.key_path) {
            (Some(cert_path), Some(key_path)) => (cert_path, key_path),
            (None, None) => return Ok(None),
            _ => return Ok(None),
        };
        let provider = Arc::new(crypto::default_provider());
        let chain = read_certificates(cert_path, "--ssl-cert-path")?;
        let key = read_key(key_path)?;
        let ocsp = options.ocsp_path.as_deref().map(read_ocsp).transpose()?.unwrap_or_default();
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match &options.auth_path {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(client_verifier(path, options.require_auth, provider)?),
        };
        let mut config = builder.with_single_cert_with_ocsp(chain, key, ocsp)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        if options.tickets {
            config.ticketer = crypto::Ticketer::new()?;
        }
        Ok(Some(Tls { config, resumption: options.resumption }))
    }

    /// TLS for one core.
    pub fn for_core(&self) -> CoreTls {
        let mut config = self.config.clone();
        if self.resumption {
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        }
        CoreTls { acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

fn read_certificates(path: &Path, flag: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failure = |reason: String| TlsError::File { what: "certificates", path: path.to_owned(), flag, reason };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(|found| found.collect::<Result<Vec<_>, _>>())
        .map_err(|error| failure(error.to_string()))?;
    if certificates.is_empty() {
        return Err(failure("the file contains none".to_owned()));
    }
    Ok(certificates)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let failure = |reason: String| TlsError::File {
        what: "a private key",
        path: path.to_owned(),
        flag: "--ssl-key-path",
        reason,
    };
    let keys = PrivateKeyDer::pem_file_iter(path)
        .and_then(|found| found.collect::<Result<Vec<_>, _>>())
        .map_err(|error| failure(error.to_string()))?;
    let preference = |key: &PrivateKeyDer<'_>| match key {
        PrivateKeyDer::Pkcs8(_) => 0,
        PrivateKeyDer::Pkcs1(_) => 1,
        _ => 2,
    };
    keys.into_iter().min_by_key(preference).ok_or_else(|| failure("the file contains none".to_owned()))
}

// Runs once, before any executor.
#[allow(clippy::disallowed_methods)]
fn read_ocsp(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::File {
        what: "an OCSP answer",
        path: path.to_owned(),
        flag: "--ssl-ocsp-path",
        reason: error.to_string(),
    })
}

fn client_verifier(
    path: &Path,
    required: bool,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    const FLAG: &str = "--ssl-auth-path";
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path, FLAG)? {
        roots.add(certificate)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| TlsError::File {
        what: "CA certificates for client certificates",
        path: path.to_owned(),
        flag: FLAG,
        reason: error.to_string(),
    })
}

/// A stream that tells whether its client has said anything.
pub struct Heard<S> {
    stream: S,
    any: Rc<Cell<bool>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Ok(1..)) = poll {
            self.any.set(true);
        }
        poll
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context)
    }
}

/// Shakes hands within the time for a first request. The orderly stop ends the wait for a client that has said nothing.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &CoreTls,
    watch: &WatchGuard,
    stream: S,
) -> io::Result<TlsStream<Heard<S>>> {
    let any = Rc::new(Cell::new(false));
    let mut handshake = pin!(tls.acceptor.accept(Heard { stream, any: any.clone() }));
    poll_fn(|context| {
        if watch.is_over() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        watch.register(context.waker());
        let poll = handshake.as_mut().poll(context);
        if poll.is_pending() && watch.is_draining() && !any.get() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        poll
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that was told to ask clients for certificates, but not whose, asked none and did not say so.
    #[test]
    fn options_given_by_half_are_named_with_what_is_missing() {
        let path = || Some(PathBuf::from("x"));
        let both = || TlsOptions { cert_path: path(), key_path: path(), ..TlsOptions::default() };
        let names = |options: TlsOptions, (given, missing): (&str, &str)| {
            let text = options.given_by_half().unwrap();
            assert!(text.starts_with(&format!("{given} has no effect without {missing}: ")), "{text}");
        };
        names(TlsOptions { key_path: None, ..both() }, ("--ssl-cert-path", "--ssl-key-path"));
        names(TlsOptions { cert_path: None, ..both() }, ("--ssl-key-path", "--ssl-cert-path"));
        names(TlsOptions { require_auth: true, ..both() }, ("--ssl-require-auth", "--ssl-auth-path"));
        let alone = TlsOptions { require_auth: true, ..TlsOptions::default() };
        names(alone, ("--ssl-require-auth", "--ssl-cert-path and --ssl-key-path"));
        let whole = TlsOptions { require_auth: true, auth_path: path(), tickets: true, ..both() };
        for complete in [TlsOptions::default(), both(), whole] {
            assert_eq!(complete.given_by_half(), None);
        }
    }
}
