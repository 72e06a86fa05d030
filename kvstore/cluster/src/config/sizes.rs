//! Numbers of bytes in text form.

/// Parses `65536`, `"64KiB"`, `"64 KiB"`, `"64K"`. Units are powers of 1,024 in upper or lower case.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.replace('_', "").parse().ok()?;
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// Exact text: `64KiB`, or plain bytes if no unit divides the number.
pub fn exact_bytes(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Rounded text: `1.5 GiB`.
pub fn show_bytes(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift {
            return format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        #[rustfmt::skip]
        let cases = [
            ("65536",      Some(65_536),    "a plain number"),
            ("4MiB",       Some(4 << 20),   "a unit"),
            ("4 mib",      Some(4 << 20),   "a space, and no capitals"),
            ("1_000",      Some(1_000),     "as in TOML"),
            ("2G",         Some(2 << 30),   "a short unit"),
            ("4MB",        None,            "powers of ten would surprise"),
            ("-1",         None,            "no size is negative"),
            ("MiB",        None,            "a unit is no number"),
            ("",           None,            "nothing is no number"),
            ("99999999TiB", None,           "too large for 64 bits"),
        ];
        for (text, bytes, because) in cases {
            assert_eq!(parse_bytes(text), bytes, "{text:?}: {because}");
        }
    }

    #[test]
    fn an_exact_size_reads_back() {
        for bytes in [0, 1, 1_023, 1_024, 1_025, 4 << 20, (4 << 20) + 1, 3 << 30] {
            assert_eq!(parse_bytes(&exact_bytes(bytes)), Some(bytes));
        }
    }
}
