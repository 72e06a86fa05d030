//! Bytes as text, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Bytes from hexadecimal digits of either case.
pub(crate) fn from_hex(digits: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |at: usize| {
        char::from(digits[at]).to_digit(16).map(|digit| digit as u8).ok_or_else(|| {
            format!("\"{}\" at digit {} is none of 0-9 and a-f", digits[at].escape_ascii(), at + 1)
        })
    };
    let pairs = digits.len() / 2;
    let bytes: Result<Vec<u8>, _> =
        (0..pairs).map(|pair| Ok(digit(2 * pair)? << 4 | digit(2 * pair + 1)?)).collect();
    if digits.len() % 2 == 1 {
        digit(digits.len() - 1)?;
        return Err(format!("{} digits, and a byte has two", digits.len()));
    }
    bytes
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// A string if the bytes are valid UTF-8 and `hex` is false, else `{"hex": "00ff"}`.
pub(crate) fn to_json(bytes: &[u8], hex: bool) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if !hex => Value::from(text),
        _ => json!({ "hex": to_hex(bytes) }),
    }
}

/// Bytes as text without control characters: `\n`, `\t`, `\r`, `\"`, `\\`, and `\x00` for other
/// control characters and invalid UTF-8.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                char if char.is_control() => {
                    let mut bytes = [0; 4];
                    for byte in char.encode_utf8(&mut bytes).bytes() {
                        let _ = write!(text, "\\x{byte:02x}");
                    }
                }
                char => text.push(char),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// A value as a terminal can show it: unchanged if all is printable, else escaped.
pub(crate) fn readable(bytes: &[u8]) -> String {
    let shown = |char: char| !char.is_control() || matches!(char, '\n' | '\t');
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().all(shown) => text.to_owned(),
        _ => escaped(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_there_and_back() {
        for bytes in [&b""[..], b"\0", b"\x00\xff\x10a"] {
            assert_eq!(from_hex(to_hex(bytes).as_bytes()).as_deref(), Ok(bytes));
        }
        assert_eq!(from_hex(b"aB").as_deref(), Ok(&[0xab][..]));
        for (wrong, what) in [("abc", "3 digits"), ("0g", "digit 2"), ("0x", "\"x\"")] {
            let error = from_hex(wrong.as_bytes()).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
        assert!(from_hex("é".as_bytes()).is_err(), "not ASCII");
    }

    #[test]
    fn escapes_are_without_a_doubt() {
        #[rustfmt::skip]
        let cases: [(&[u8], &str); 5] = [
            (b"plain",             "plain"),
            ("héllo ✓".as_bytes(), "héllo ✓"),
            (b"a\nb\t\\\"",        "a\\nb\\t\\\\\\\""),
            (b"\x00\x1b[31m\x7f",  "\\x00\\x1b[31m\\x7f"),
            (b"ok\xff\xfe",        "ok\\xff\\xfe"),
        ];
        for (bytes, text) in cases {
            assert_eq!(escaped(bytes), text);
        }
    }

    #[test]
    fn a_terminal_is_shown_no_control_characters() {
        assert_eq!(readable(b"two\nlines\t\"q\""), "two\nlines\t\"q\"");
        assert_eq!(readable(b"\x1b[2J"), "\\x1b[2J");
    }
}
