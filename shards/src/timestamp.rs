//! Timestamps in the interface's format.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A moment, in nanoseconds since 1970 in UTC (years 1678 to 2262). Stored and compared as the number, shown as RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The moment that a clock shows which counts from 1970. Clocks beyond the year 2262 stay at its end.
    pub fn from_unix(since_1970: Duration) -> Self {
        Self(i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX))
    }

    /// The moment of an RFC 3339 date-time with an offset, to the nanosecond; `None` when the text is no such date or
    /// lies outside the years this type can hold.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        OffsetDateTime::parse(text, &Rfc3339).ok().and_then(Self::from_date)
    }

    /// The same moment; `None` outside the years this type can hold.
    pub fn from_date(date: OffsetDateTime) -> Option<Self> {
        i64::try_from(date.unix_timestamp_nanos()).ok().map(Self)
    }

    /// As a date in UTC.
    pub fn date(self) -> OffsetDateTime {
        // Every i64 of nanoseconds lies well within the years 1677 to 2262, which the type accepts.
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0)).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// How long after `earlier` this moment is; zero when it is not after it (clocks may be set back).
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(i128::from(self.0) - i128::from(earlier.0)).unwrap_or(0))
    }
}

/// RFC 3339 in UTC with `Z`; the fraction has no trailing zeros and is left out when it is zero.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.date().format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_lose_their_trailing_zeros() {
        assert_eq!(Timestamp(1_500_000_000).to_string(), "1970-01-01T00:00:01.5Z");
        assert_eq!(Timestamp(2_000_000_001).to_string(), "1970-01-01T00:00:02.000000001Z");
        assert_eq!(Timestamp(3_000_000_000).to_string(), "1970-01-01T00:00:03Z");
    }

    #[test]
    fn text_and_number_are_inverse() {
        for nanos in [0, 1, -1, i64::MAX, i64::MIN, 1_793_250_000_123_456_789] {
            assert_eq!(Timestamp::parse_rfc3339(&Timestamp(nanos).to_string()), Some(Timestamp(nanos)));
        }
        assert_eq!(
            Timestamp::parse_rfc3339("2021-01-01T02:00:00+02:00"),
            Timestamp::parse_rfc3339("2021-01-01T00:00:00Z")
        );
        assert_eq!(Timestamp::parse_rfc3339("2021-01-01"), None);
    }
}
