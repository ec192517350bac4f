//! Dates in requests.

use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, PrimitiveDateTime, Time};

use crate::api::error::{ApiError, ErrorCode};

/// Which side of a bare day counts as the instant meant by a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `after…`: a day stands for its end.
    After,
    /// `before…`: a day stands for its start.
    Before,
}

/// Reads a filter's date: RFC 3339 with an offset, or `YYYY-MM-DD`.
///
/// # Errors
/// `code`, for any other text.
pub fn parse_date(text: &str, bound: Bound, code: ErrorCode) -> Result<OffsetDateTime, ApiError> {
    if let Ok(instant) = OffsetDateTime::parse(text, &Rfc3339) {
        return Ok(instant);
    }
    // Nothing lies after the last day that can be written, so its end may as well be its start.
    let day = parse_day(text).map(|day| match bound {
        Bound::After => day.next_day().unwrap_or(day),
        Bound::Before => day,
    });
    let message = || format!("`{text}` is not a valid date. Give an RFC 3339 date-time or a day such as 2026-01-31.");
    day.map(midnight).ok_or_else(|| ApiError::new(code, message()))
}

fn parse_day(text: &str) -> Option<Date> {
    Date::parse(text, format_description!("[year]-[month]-[day]")).ok()
}

fn midnight(day: Date) -> OffsetDateTime {
    PrimitiveDateTime::new(day, Time::MIDNIGHT).assume_utc()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_bare_day_means_its_end_after_and_its_start_before() {
        let code = ErrorCode::InvalidTaskAfterEnqueuedAt;
        let read = |text, bound| parse_date(text, bound, code).ok();
        assert_eq!(read("2021-12-03", Bound::After), Some(datetime!(2021-12-04 0:00 UTC)));
        assert_eq!(read("2021-12-03", Bound::Before), Some(datetime!(2021-12-03 0:00 UTC)));
        assert_eq!(read("2021-12-03T10:00:00+01:00", Bound::After), Some(datetime!(2021-12-03 9:00 UTC)));
        assert_eq!(read("9999-12-31", Bound::After), Some(datetime!(9999-12-31 0:00 UTC)));
        for broken in ["", "2020", "2021-1-1", "2021-02-30", "2021-12-03T10:00:00", "9999-12-31x"] {
            assert_eq!(read(broken, Bound::Before), None, "{broken}");
        }
    }
}
