//! The date and the command in a report.

use std::time::{SystemTime, UNIX_EPOCH};

/// The current time in UTC: `2026-11-23T03:45:00Z`.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    of(since.as_secs())
}

/// The command line of this process.
pub fn command() -> String {
    let arguments = std::env::args().skip(1);
    std::iter::once("skein".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// The time `seconds` after the beginning of 1970.
fn of(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a number of days after 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years that begin in March end with the leap day; 400 of them have 146,097 days.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_795_405_500, "2026-11-23T03:45:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(of(seconds), wanted);
        }
    }
}
