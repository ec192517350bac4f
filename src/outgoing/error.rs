//! Why a request has no answer.

use std::net::IpAddr;

/// What a request was waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// For the name, the connection or the TLS handshake.
    Connect,
    /// For the other side to take a byte of the request or to send one of the answer.
    Transfer,
    /// For the answer as a whole.
    Total,
}

/// Why a request has no answer, or only a part of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The URL has a scheme that is not spoken, or no host.
    #[error("`{0}` cannot be called: only `http` and `https` URLs can")]
    Url(String),
    /// A header of the request cannot be written.
    #[error("the header `{0}` has an invalid name or value")]
    Header(String),
    /// The host has only addresses that must not be called.
    #[error("the address {address} is not a public one; `--experimental-allowed-ip-networks` can allow it")]
    Forbidden {
        /// One of them.
        address: IpAddr,
        /// Whether a name led there; otherwise the URL holds the address itself.
        is_of_name: bool,
    },
    /// The host's name has no address.
    #[error("the name `{host}` cannot be resolved: {reason}")]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// Nobody takes the connection.
    #[error("no connection: {0}")]
    Connect(String),
    /// The TLS handshake failed.
    #[error("the TLS handshake failed: {0}")]
    Tls(String),
    /// A deadline has passed.
    #[error("no answer in time ({})", match .0 { Phase::Connect => "connecting", Phase::Transfer => "waiting", Phase::Total => "in all" })]
    TimedOut(Phase),
    /// The connection ended or broke before the answer was complete.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// What came back is no HTTP answer.
    #[error("the answer is malformed: {0}")]
    Malformed(&'static str),
    /// The answer is larger than the caller takes.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// What the caller takes.
        limit: u64,
    },
    /// A body that is read while it is sent cannot be read, or has another length than was said.
    #[error("what is to be sent cannot be read: {0}")]
    Unreadable(String),
    /// One redirect led to another too often.
    #[error("more than {0} redirects")]
    Redirects(u8),
}

impl SendError {
    /// Whether the other side has certainly seen nothing of the request.
    pub fn is_before_sending(&self) -> bool {
        matches!(
            self,
            Self::Url(_)
                | Self::Header(_)
                | Self::Forbidden { .. }
                | Self::Resolve { .. }
                | Self::Connect(_)
                | Self::Tls(_)
                | Self::TimedOut(Phase::Connect)
        )
    }

    /// Whether nobody was reached: a wrong address fails so each time.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Forbidden { .. } | Self::Resolve { .. } | Self::Connect(_) | Self::TimedOut(Phase::Connect)
        )
    }

    /// Whether a deadline passed.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut(_))
    }

    /// Whether the same request may fare better later: the network failed, rather than the request or the answer. A name may lead
    /// elsewhere by then, an address stays what it is.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Forbidden { is_of_name: true, .. }
                | Self::Resolve { .. }
                | Self::Connect(_)
                | Self::Tls(_)
                | Self::TimedOut(_)
                | Self::Broken(_)
        )
    }
}
