//! Reading a history line by line.
//!
//! A recorder that is killed may leave an incomplete last line. The reader ignores it. As no [end
//! record](super::Record::End) follows, the history counts as incomplete.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::{FORMAT, FORMAT_OLDEST, Header, Record};

/// Most bytes of a line. A list of a million values takes some megabytes.
const LINE_BYTES_MAX: u64 = 1 << 28;

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {}: {source}", path.display())]
    System {
        /// Path of the history.
        path: PathBuf,
        source: io::Error,
    },
    /// A line is not a record.
    #[error("{}:{line}: not a record of a history: {why}", path.display())]
    Line {
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        why: String,
    },
    /// The first line is not a header.
    #[error("{} does not begin with the header of a history", path.display())]
    NoHeader {
        /// Path of the history.
        path: PathBuf,
    },
    /// The file has another format version.
    #[error("{} is a history in format {format}; this program reads formats {FORMAT_OLDEST} to {FORMAT}", path.display())]
    Version {
        path: PathBuf,
        /// Version of the file.
        format: u32,
    },
    /// The history has too many items for the checker's indices.
    #[error("the history has more than {max} transactions, things done, or values: split the run")]
    TooMany {
        /// Most items that can be numbered.
        max: usize,
    },
}

/// Iterator over the records that follow the header.
pub struct Reader<R = BufReader<File>> {
    pub header: Header,
    lines: R,
    path: PathBuf,
    line: u64,
    text: Vec<u8>,
}

impl Reader {
    /// Opens the history at `path`.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let file = File::open(path);
        let file = file.map_err(|source| ReadError::System { path: path.to_owned(), source })?;
        Self::over(BufReader::new(file), path)
    }
}

impl<R: BufRead> Reader<R> {
    /// Reads `lines`. Errors name `path`.
    pub fn over(mut lines: R, path: &Path) -> Result<Self, ReadError> {
        let mut text = Vec::new();
        let first = lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text);
        first.map_err(|source| ReadError::System { path: path.to_owned(), source })?;
        let path = path.to_owned();
        // Another version may have another header, so the version is checked before the header is
        // parsed.
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        match value["header"]["format"].as_u64() {
            Some(format) if (FORMAT_OLDEST.into()..=FORMAT.into()).contains(&format) => {}
            Some(format) => return Err(ReadError::Version { path, format: format as u32 }),
            None => return Err(ReadError::NoHeader { path }),
        }
        let wrong = |path, why| Err(ReadError::Line { path, line: 1, why });
        let header = match serde_json::from_slice(&text) {
            Ok(Record::Header(header)) => *header,
            Ok(_) => return Err(ReadError::NoHeader { path }),
            Err(error) => return wrong(path, error.to_string()),
        };
        if let Some(why) = header.contradiction() {
            return wrong(path, why);
        }
        Ok(Self { header, lines, path, line: 1, text })
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.text.clear();
        self.line += 1;
        let line = self.lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.text);
        let wrong = |why: String| ReadError::Line { path: self.path.clone(), line: self.line, why };
        match line {
            Ok(0) => None,
            Ok(bytes) if bytes as u64 == LINE_BYTES_MAX && !self.text.ends_with(b"\n") => {
                Some(Err(wrong(format!("a line of more than {LINE_BYTES_MAX} bytes"))))
            }
            Ok(_) => match serde_json::from_slice(&self.text) {
                Ok(record) => Some(Ok(record)),
                Err(_) if !self.text.ends_with(b"\n") => None,
                Err(error) => Some(Err(wrong(error.to_string()))),
            },
            Err(source) => Some(Err(ReadError::System { path: self.path.clone(), source })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"header":{"format":2,"workload":"w","skein":"s","cluster":{"nodes":1,"groups":1,"replicas":1,"engines":1},"seed":1,"t":0,"unix_ms":0,"token_bytes":1,"bank":null}}"#;

    #[test]
    fn what_is_no_history_is_said_with_its_line() {
        let [older, newer] =
            ["\"format\":1", "\"format\":4"].map(|other| HEADER.replace("\"format\":2", other));
        let spoilt = format!("{HEADER}\n{{\"end\":{{\"t\":1}}}}\n{{\"inv\n");
        #[rustfmt::skip]
        let cases: [(&str, &str); 6] = [
            ("",              "does not begin with the header"),
            ("{}",            "does not begin with the header"),
            ("not JSON",      "does not begin with the header"),
            (&older,          "format 1; this program reads formats 2 to 3"),
            (&newer,          "format 4; this program reads formats 2 to 3"),
            (&spoilt,         "file:3: not a record"),
        ];
        for (text, wanted) in cases {
            let error = read(text.as_bytes()).expect_err(wanted).to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
        let foreign = [HEADER.as_bytes(), b"\n{\"end\":\xff}\n"].concat();
        let error = read(&foreign).expect_err("no text").to_string();
        assert!(error.contains("file:2: not a record"), "{error}");
    }

    fn read(text: &[u8]) -> Result<Vec<Record>, ReadError> {
        Reader::over(text, Path::new("file")).and_then(Iterator::collect)
    }

    #[test]
    fn a_last_line_that_breaks_off_is_not_read() {
        let end = "{\"end\":{\"t\":1}}";
        for (rest, wanted) in
            [("", 0), (end, 1), ("{\"end\":{\"t\"", 0), ("{\"end\":{\"t\":1}}\n{", 1)]
        {
            let records = read(format!("{HEADER}\n{rest}").as_bytes()).unwrap();
            assert_eq!(records.len(), wanted, "{rest}");
        }
    }
}
