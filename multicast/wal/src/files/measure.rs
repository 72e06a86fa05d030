//! How long the disk of a directory takes to make an append durable.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::OpenError;
use super::directory::{PROBE, check, options, write_all};
use crate::aligned::Aligned;

/// Length of the file that is written, from its beginning again when it is full. In bytes.
const FILE_BYTES: u64 = 16 << 20;

/// Times of appends, each from its beginning until it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendTimes {
    pub count: usize,
    pub median: Duration,
    pub p99: Duration,
}

/// Appends blocks of `bytes`, a multiple of [`BLOCK`](crate::format::BLOCK), as the log does, with as many `writers` at
/// once, for this long. The file of the measurement is removed.
pub fn measure(
    directory: &Path,
    bytes: usize,
    writers: usize,
    time: Duration,
) -> Result<AppendTimes, OpenError> {
    check(directory)?;
    let path = directory.join(PROBE);
    let error = |operation, source| OpenError::Io { operation, path: directory.to_owned(), source };
    let file = options().create(true).truncate(true).open(&path);
    let file = file.map_err(|source| error("write to", source))?;
    let (zeroes, next) = (Aligned::new(1 << 20), AtomicU64::new(0));
    let blocks = FILE_BYTES / bytes as u64;
    let measured = (0..FILE_BYTES)
        .step_by(1 << 20)
        .try_for_each(|offset| write_all(&file, offset, zeroes.bytes()))
        .and_then(|()| file.sync_all())
        .and_then(|()| {
            let until = Instant::now() + time;
            let write = || {
                let (block, mut times) = (Aligned::new(bytes), Vec::new());
                while times.is_empty() || Instant::now() < until {
                    let at = next.fetch_add(1, Ordering::Relaxed) % blocks * bytes as u64;
                    let begun = Instant::now();
                    write_all(&file, at, &block.bytes()[..bytes])?;
                    times.push(begun.elapsed());
                }
                Ok(times)
            };
            thread::scope(|scope| {
                let writers: Vec<_> = (0..writers).map(|_| scope.spawn(write)).collect();
                let times =
                    writers.into_iter().map(|writer| writer.join().expect("it only writes"));
                times.collect::<std::io::Result<Vec<Vec<Duration>>>>()
            })
        });
    let removed = fs::remove_file(&path);
    let mut times = measured.map_err(|source| error("write to", source))?.concat();
    removed.map_err(|source| error("remove a file of", source))?;
    times.sort_unstable();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    Ok(AppendTimes { count: times.len(), median: at(50), p99: at(99) })
}
