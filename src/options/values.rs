//! The kinds of values that options have, each with the one function that reads it from text.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A size in bytes, written as a number or with a unit: `1000`, `100 MB`, `2 KiB`, `1.5mb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteSize, String> {
        let wrong = || format!("`{text}` is not a size; examples are `1000`, `100 MB` and `2 KiB`");
        let trimmed = text.trim();
        let digits_end =
            trimmed.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits_end);
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" => 1_000,
            "m" | "mb" => 1_000_000,
            "g" | "gb" => 1_000_000_000,
            "t" | "tb" => 1_000_000_000_000,
            "ki" | "kib" => 1 << 10,
            "mi" | "mib" => 1 << 20,
            "gi" | "gib" => 1 << 30,
            "ti" | "tib" => 1 << 40,
            _ => return Err(wrong()),
        };
        let bytes = match number.split_once('.') {
            None => number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)),
            Some(_) => number.parse::<f64>().ok().map(|number| (number * factor as f64).round() as u64),
        };
        bytes.map(ByteSize).ok_or_else(wrong)
    }
}

/// In which surroundings the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// Anything goes.
    Development,
    /// A master key is mandatory.
    Production,
}

impl FromStr for Environment {
    type Err = String;

    fn from_str(text: &str) -> Result<Environment, String> {
        match text {
            "development" => Ok(Environment::Development),
            "production" => Ok(Environment::Production),
            _ => Err(format!("`{text}` is neither `development` nor `production`")),
        }
    }
}

/// How much the log tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// And what may become one.
    Warn,
    /// And the course of things.
    Info,
    /// And their details.
    Debug,
    /// And everything.
    Trace,
}

impl LogLevel {
    /// Its name in lower case, as log filters write it.
    pub fn as_str(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<LogLevel, String> {
        let levels = [LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
        levels
            .into_iter()
            .find(|level| level.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| format!("`{text}` is not one of OFF, ERROR, WARN, INFO, DEBUG, TRACE"))
    }
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogsMode {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<LogsMode, String> {
        match text.to_ascii_lowercase().as_str() {
            "human" => Ok(LogsMode::Human),
            "json" => Ok(LogsMode::Json),
            _ => Err(format!("`{text}` is neither HUMAN nor JSON")),
        }
    }
}

/// What the cores run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoBackend {
    /// io_uring, or epoll where that is refused.
    Auto,
    /// Files by io_uring, sockets by epoll, or no start.
    IoUring,
    /// Sockets by epoll, files by helper threads.
    Epoll,
    /// All by glommio over io_uring, or no start.
    Glommio,
}

impl FromStr for IoBackend {
    type Err = String;

    fn from_str(text: &str) -> Result<IoBackend, String> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(IoBackend::Auto),
            "io_uring" => Ok(IoBackend::IoUring),
            "epoll" => Ok(IoBackend::Epoll),
            "glommio" => Ok(IoBackend::Glommio),
            _ => Err(format!("`{text}` is none of auto, io_uring, epoll and glommio")),
        }
    }
}

/// A range of addresses: those whose first `prefix` bits are those of `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    prefix: u8,
}

impl IpNetwork {
    /// Whether the address is in the range. Addresses of the other family never are.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (own, own_len) = bits(self.address);
        let (other, other_len) = bits(address);
        own_len == other_len && masked(other, other_len, self.prefix) == own
    }
}

/// An address as a number, and how many bits it has.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

fn masked(bits: u128, bit_count: u8, prefix: u8) -> u128 {
    let host_bits = u32::from(bit_count - prefix);
    bits.checked_shr(host_bits).and_then(|bits| bits.checked_shl(host_bits)).unwrap_or(0)
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for IpNetwork {
    type Err = String;

    fn from_str(text: &str) -> Result<IpNetwork, String> {
        let wrong = || format!("`{text}` is neither an address nor a range such as `10.0.0.0/8`");
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let (number, bit_count) = bits(address);
        let prefix = match prefix {
            None => bit_count,
            Some(digits) if !digits.starts_with('+') => digits.parse().map_err(|_| wrong())?,
            Some(_) => return Err(wrong()),
        };
        if prefix > bit_count {
            return Err(wrong());
        }
        if masked(number, bit_count, prefix) != number {
            return Err(format!("`{text}` has bits set after its first {prefix}"));
        }
        Ok(IpNetwork { address, prefix })
    }
}

/// Which addresses outside the public network the server may call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AllowedNetworks {
    /// None.
    #[default]
    PublicOnly,
    /// These.
    Listed(Vec<IpNetwork>),
    /// Every one.
    Any,
}

impl FromStr for AllowedNetworks {
    type Err = String;

    fn from_str(text: &str) -> Result<AllowedNetworks, String> {
        let items: Vec<&str> = text.split(',').map(str::trim).collect();
        if items.contains(&"any") {
            return Ok(AllowedNetworks::Any);
        }
        items.into_iter().map(str::parse).collect::<Result<_, _>>().map(AllowedNetworks::Listed)
    }
}

/// An absolute URL, only as far as the start of the server checks it: a scheme, and something after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlText(pub String);

impl FromStr for UrlText {
    type Err = String;

    fn from_str(text: &str) -> Result<UrlText, String> {
        let scheme_fits = |scheme: &str| {
            scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        };
        match text.split_once("://") {
            Some((scheme, rest)) if scheme_fits(scheme) && !rest.is_empty() && !rest.starts_with('/') => {
                Ok(UrlText(text.to_owned()))
            }
            _ => Err(format!("`{text}` is not an absolute URL such as `https://example.org/hook`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_or_without_a_unit() {
        for (text, bytes) in [
            ("0", 0),
            ("1000", 1000),
            ("100 MB", 100_000_000),
            ("2 KiB", 2048),
            ("1kb", 1000),
            ("1.5 MB", 1_500_000),
            ("1.5KiB", 1536),
            (" 3 gib ", 3 << 30),
            ("10 B", 10),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in ["", "many", "-1", "1 XB", "MB", ".", "1.2.3", "1e3", "18446744073709551616", "99999999999 TB", "+1"]
        {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad}");
        }
    }

    #[test]
    fn networks_have_no_bits_behind_their_mask() {
        for bad in ["127.0.0.1/8", "banana", "1.2.3.4/33", "1.2.3.4/", "1.2.3.4/+8", "::1/64", "", "10.0.0.0/8,"] {
            assert!(bad.parse::<AllowedNetworks>().is_err(), "{bad}");
        }
        let listed: AllowedNetworks = "10.0.0.0/8, 127.0.0.1,::1/128,fe80::/10".parse().unwrap();
        let AllowedNetworks::Listed(ranges) = &listed else { panic!("{listed:?}") };
        let holds = |text: &str| ranges.iter().any(|range| range.contains(text.parse().unwrap()));
        for inside in ["10.255.0.1", "127.0.0.1", "::1", "febf::9"] {
            assert!(holds(inside), "{inside}");
        }
        for outside in ["11.0.0.0", "127.0.0.2", "::2", "fec0::1", "::a00:1"] {
            assert!(!holds(outside), "{outside}");
        }
        assert_eq!("any".parse(), Ok(AllowedNetworks::Any));
        assert!("0.0.0.0/0".parse::<IpNetwork>().unwrap().contains("9.9.9.9".parse().unwrap()));
    }

    #[test]
    fn names_have_the_letter_case_they_have() {
        assert_eq!("Trace".parse(), Ok(LogLevel::Trace));
        assert!("loud".parse::<LogLevel>().is_err());
        assert_eq!("json".parse(), Ok(LogsMode::Json));
        assert_eq!("IO_URING".parse(), Ok(IoBackend::IoUring));
        assert!("kqueue".parse::<IoBackend>().is_err());
        assert!("PRODUCTION".parse::<Environment>().is_err());
        assert!("nope".parse::<UrlText>().is_err() && "http://h.example".parse::<UrlText>().is_ok());
    }
}
