//! Reading a history, line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::{FORMAT, Header, Record};

/// Why a file is no history that can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line of it is no record.
    #[error("{}:{line}: not a record of a history: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// It does not begin as a history does.
    #[error("{} does not begin with the header of a history", path.display())]
    NoHeader {
        /// The file.
        path: PathBuf,
    },
    /// It is of another version.
    #[error("{} is a history in format {format}; this program reads format {FORMAT}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
}

/// The records of a history after its header.
pub struct Reader<R = BufReader<File>> {
    /// What it is of.
    pub header: Header,
    lines: R,
    path: PathBuf,
    line: u64,
    text: String,
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
    /// Reads `lines`, which errors call `path`.
    pub fn over(mut lines: R, path: &Path) -> Result<Self, ReadError> {
        let mut text = String::new();
        lines
            .read_line(&mut text)
            .map_err(|source| ReadError::System { path: path.to_owned(), source })?;
        let path = path.to_owned();
        // Another version may have another header: its number is looked at first.
        let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        match value["header"]["format"].as_u64() {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => return Err(ReadError::Version { path, format: format as u32 }),
            None => return Err(ReadError::NoHeader { path }),
        }
        let header = match serde_json::from_str(&text) {
            Ok(Record::Header(header)) => *header,
            Ok(_) => return Err(ReadError::NoHeader { path }),
            Err(error) => return Err(ReadError::Line { path, line: 1, why: error.to_string() }),
        };
        Ok(Self { header, lines, path, line: 1, text })
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.text.clear();
        self.line += 1;
        match self.lines.read_line(&mut self.text) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&self.text).map_err(|error| {
                let (path, why) = (self.path.clone(), error.to_string());
                ReadError::Line { path, line: self.line, why }
            })),
            Err(source) => Some(Err(ReadError::System { path: self.path.clone(), source })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"header":{"format":1,"workload":"w","skein":"s","cluster":{"nodes":1,"groups":1,"replicas":1,"engines":1},"seed":1,"t":0,"unix_ms":0,"token_bytes":1,"bank":null}}"#;

    #[test]
    fn what_is_no_history_is_said_with_its_line() {
        let other = HEADER.replace("\"format\":1", "\"format\":2");
        let cut = format!("{HEADER}\n{{\"end\":{{\"t\":1}}}}\n{{\"inv");
        #[rustfmt::skip]
        let cases: [(&str, &str); 5] = [
            ("",              "does not begin with the header"),
            ("{}",            "does not begin with the header"),
            ("not JSON",      "does not begin with the header"),
            (&other,          "format 2; this program reads format 1"),
            (&cut,            "file:3: not a record"),
        ];
        for (text, wanted) in cases {
            let reader = Reader::over(text.as_bytes(), Path::new("file"));
            let read = reader.and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let error = read.expect_err(wanted).to_string();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
