//! Whether the master key is good enough, and a better one to show where it is not.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Options;
use super::values::Environment;

/// The least length of a master key in production, in bytes.
pub const MASTER_KEY_BYTES_MIN: usize = 16;

/// What is to be said about the master key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MasterKeyAdvice {
    /// Nothing.
    Fine,
    /// A text for people; the server starts.
    Warn(String),
    /// A text for people; the server does not start.
    Refuse(String),
}

/// Checks the master key. `generated` is the key that is proposed instead; see [`generate`].
pub fn check(options: &Options, generated: &str) -> MasterKeyAdvice {
    let length = options.master_key.as_ref().map_or(0, String::len);
    if length >= MASTER_KEY_BYTES_MIN {
        return MasterKeyAdvice::Fine;
    }
    let problem = match length {
        0 => "No master key is set: anyone who can reach this server has full access.".to_owned(),
        _ => format!("The master key has only {length} bytes and can be guessed."),
    };
    let remedy = format!("Here is a newly generated one: --master-key {generated}");
    match options.environment {
        Environment::Development => MasterKeyAdvice::Warn(format!(
            "{problem} Set a master key of at least {MASTER_KEY_BYTES_MIN} bytes. {remedy}"
        )),
        Environment::Production => MasterKeyAdvice::Refuse(format!(
            "{problem} Production requires a master key of at least {MASTER_KEY_BYTES_MIN} bytes. {remedy}"
        )),
    }
}

/// A fresh master key: 32 random bytes in the URL alphabet of base64.
pub fn generate() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}
