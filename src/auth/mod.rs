//! Authorization: the `Authorization` header, API keys, tenant tokens. Everything here is a pure function of the request, the
//! keys and the time; the control plane stores the keys.

pub mod actions;
pub mod bodies;
pub mod grant;
pub mod keys;
pub mod tenant;

pub use actions::{Action, ActionName, Rights};
pub use bodies::{KeyPatch, NewKey, key_already_exists};
pub use grant::{AuthError, Grant, authorize};
pub use keys::{ApiKey, IndexPattern, KeyName, KeySet, KeyView, default_keys, key_not_found, key_value};
