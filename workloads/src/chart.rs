//! Pictures of one line, for terminals and pipes alike.

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub struct Paint(pub bool);

impl Paint {
    /// What one looks for first.
    pub fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    /// All is well.
    pub fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    /// Something is not.
    pub fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }

    /// What may be overlooked.
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

/// The nearest whole number; 0 of what is below.
#[expect(clippy::cast_sign_loss, reason = "a cast of what is below 0 gives 0, as promised")]
pub fn whole(number: f64) -> u64 {
    number.round() as u64
}

/// The most characters of a [`sparkline`].
const SPARKS_MAX: usize = 40;

/// Values over time, each as a column that is a share of the highest: a run of even throughput is a
/// row of full columns, and a pause is a gap.
pub fn sparkline(values: &[u64]) -> String {
    const COLUMNS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if values.is_empty() {
        return String::new();
    }
    let means: Vec<u64> = values
        .chunks(values.len().div_ceil(SPARKS_MAX))
        .map(|chunk| chunk.iter().sum::<u64>() / chunk.len() as u64)
        .collect();
    let highest = means.iter().copied().max().unwrap_or(0).max(1);
    // Any operation at all is more than a gap.
    let column = |value: &u64| match value {
        0 => 0,
        value => (value * 8).div_ceil(highest) as usize,
    };
    means.iter().map(|value| COLUMNS[column(value)]).collect()
}

/// Rising values as one bar of at most `width` characters, darker the rarer: up to the first value
/// it is `█`, from there to the second `▓`, then `▒`, then `░`. The scale is logarithmic from 1 to
/// `longest`, since percentiles lie magnitudes apart.
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
