//! Text charts for terminals and pipes.

use std::fmt::Write as _;

/// Whether text is coloured.
#[derive(Clone, Copy, Debug)]
pub struct Paint(pub bool);

impl Paint {
    /// Emphasis.
    pub fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Success.
    pub fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Failure.
    pub fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }

    /// Secondary text.
    pub fn faint(self, text: &str) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The nearest whole number; 0 for negative values.
#[expect(clippy::cast_sign_loss, reason = "a cast of what is below 0 gives 0, as promised")]
pub fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// Column heights in eighths of a character.
const COLUMNS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Most characters of a [`sparkline`].
const SPARKS_MAX: usize = 40;

/// Values over time as columns scaled to the highest: even throughput gives a row of full columns,
/// a pause gives a gap.
pub fn sparkline(values: &[u64]) -> String {
    if values.is_empty() {
        return String::new();
    }
    let means: Vec<u64> = values
        .chunks(values.len().div_ceil(SPARKS_MAX))
        .map(|chunk| chunk.iter().sum::<u64>() / chunk.len() as u64)
        .collect();
    let highest = means.iter().copied().max().unwrap_or(0).max(1);
    // A value above 0 has at least the lowest visible column.
    let column = |value: &u64| match value {
        0 => 0,
        value => (value * 8).div_ceil(highest) as usize,
    };
    means.iter().map(|value| COLUMNS[column(value)]).collect()
}

/// Rates over time as a chart of `height` lines and at most `width` columns above an axis, with
/// marks at the columns of the given values. `from` and `to` are written below the ends of the
/// axis.
pub fn timeline(
    values: &[u64],
    marks: &[usize],
    [width, height]: [usize; 2],
    [from, to]: [&str; 2],
) -> String {
    let values = if values.is_empty() { &[0] } else { values };
    let chunk = values.len().div_ceil(width.max(1));
    let means: Vec<u64> =
        values.chunks(chunk).map(|chunk| chunk.iter().sum::<u64>() / chunk.len() as u64).collect();
    let highest = means.iter().copied().max().unwrap_or(0).max(1);
    let label = format!("{}/s", grouped(highest));
    let margin = label.chars().count() + 2;
    let mut text = String::new();
    for row in (0..height as u64).rev() {
        let name = if row + 1 == height as u64 { label.as_str() } else { "" };
        let full = |mean: &u64| (mean * height as u64 * 8).div_ceil(highest);
        let column = |mean: &u64| COLUMNS[full(mean).saturating_sub(row * 8).min(8) as usize];
        let line: String = means.iter().map(column).collect();
        text.push_str(format!("{name:>margin$} │{line}").trim_end());
        text.push('\n');
    }
    let marked = |column: usize| marks.iter().any(|mark| mark / chunk == column);
    let axis: String =
        (0..means.len()).map(|column| if marked(column) { '▲' } else { '─' }).collect();
    let _ = writeln!(text, "{:>margin$} └{axis}", 0);
    let room = means.len().saturating_sub(from.chars().count());
    let _ = writeln!(text, "{:>margin$}  {from}{to:>room$}", "");
    text
}

/// Ascending values as one bar of at most `width` characters: `█` up to the first value, then `▓`,
/// `▒` and `░` up to the next ones. The scale is logarithmic from 1 to `longest`, because
/// percentiles lie magnitudes apart.
pub fn steps(values: &[f64; 4], longest: f64, width: usize) -> String {
    let scale = width as f64 / longest.max(2.0).ln();
    let mut bar = String::new();
    let mut drawn = 0;
    for (value, shade) in values.iter().zip(['█', '▓', '▒', '░']) {
        let end = (whole(value.max(1.0).ln() * scale) as usize).min(width);
        bar.extend(std::iter::repeat_n(shade, end.saturating_sub(drawn)));
        drawn = drawn.max(end);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, wanted) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")]
        {
            assert_eq!(grouped(number), wanted);
        }
    }

    #[test]
    fn a_sparkline_shows_pauses_and_fits_a_line() {
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[0, 0]), "  ");
        assert_eq!(sparkline(&[8, 8, 0, 1, 4, 8]), "██ ▁▄█");
        assert_eq!(sparkline(&vec![5; 1_000]), "█".repeat(40));
    }

    #[test]
    fn a_timeline_shows_where_it_was_marked() {
        let picture = timeline(&[16, 16, 0, 4, 16, 16], &[2], [6, 2], ["0 s", "6 s"]);
        let wanted = "  16/s │██  ██\n       │██ ▄██\n     0 └──▲───\n        0 s6 s\n";
        assert_eq!(picture, wanted);
        let long = timeline(&vec![5; 1_000], &[0, 999], [50, 3], ["a", "b"]);
        assert!(long.lines().all(|line| line.chars().count() <= 7 + 50), "{long}");
        assert_eq!(long.matches('▲').count(), 2);
        assert_eq!(timeline(&[], &[], [9, 1], ["a", "b"]).lines().count(), 3);
    }

    #[test]
    fn steps_never_leave_their_width() {
        assert_eq!(steps(&[10.0, 100.0, 1_000.0, 10_000.0], 10_000.0, 8), "██▓▓▒▒░░");
        assert_eq!(steps(&[10.0, 10.0, 10.0, 10.0], 10.0, 4), "████");
        assert_eq!(steps(&[0.0, 0.0, 0.0, 0.0], 1.0, 4), "");
        assert_eq!(steps(&[5.0, 1e9, 1e9, 1e9], 10.0, 8).chars().count(), 8);
    }

    #[test]
    fn colours_only_where_they_are_seen() {
        assert_eq!(Paint(false).bad("x"), "x");
        assert_eq!(Paint(true).good("x"), "\x1b[32mx\x1b[0m");
    }
}
