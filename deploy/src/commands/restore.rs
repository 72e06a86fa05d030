//! `skein restore`: fills a new cluster from a backup.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use serde_json::json;
use skein_backup::Backup;
use skein_checker::chart::grouped;
use skein_client::{Driver, Error, GroupId, Limits, Operation, SessionKey, Ticket, Transaction};
use skein_fabric::any::AnyFabric;
use skein_kvstore::backup::Mark;
use skein_kvstore::machine::PAIR_OVERHEAD;

use crate::args::Global;
use crate::data::{failed, say_json};
use crate::exit::{Exit, usage};
use crate::progress::{Interrupt, bar};

/// Time that a write may take.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Bytes of keys and values in a transaction, besides its last pair.
const TRANSACTION_BYTES: usize = 128 << 10;
/// Bytes of an operation besides its key and its value, at most.
const OPERATION_OVERHEAD: usize = 16;
/// Transactions under way, and the bytes of their pairs besides the last one's.
const UNDER_WAY_MAX: usize = 32;
const UNDER_WAY_BYTES_MAX: usize = 16 << 20;

/// Fills a new, empty cluster from a backup
///
/// `skein up` first, with the settings that the cluster is to have: the number of groups, the durability, the store and the
/// limits may be others than those of the cluster that was backed up. The whole backup is verified before anything is
/// written. A cluster that holds keys is refused. If a restore is cut short, the cluster holds a part of the backup: make it
/// empty by `skein down --wipe` and `skein up`, and restore again.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory that `skein backup` wrote
    #[arg(value_name = "BACKUP")]
    from: PathBuf,
    /// Prints a JSON report
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let began = Instant::now();
        let backup = Backup::open(&self.from)?;
        let mut driver = Driver::connect(global.dir())?;
        driver.set_timeout(TIMEOUT);
        let session = driver.open();
        check_empty(&totals(&mut driver, session).map_err(failed(global))?, global)?;
        self.verify(&backup, &driver)?;
        let verified = began.elapsed();
        let interrupt = Interrupt::listen()?;

        let (keys, bytes) = backup.manifest().totals();
        let mut load = Load::new(&mut driver, session);
        let loaded = load.all(&backup, &interrupt);
        let written = load.written;
        loaded.with_context(|| {
            format!(
                "the restore was cut short after {} of {} keys, and the cluster holds a part of the backup: make it empty by `skein{dir} down --wipe` and `skein{dir} up`, and restore again",
                grouped(written), grouped(keys), dir = global.dir_flag()
            )
        })?;
        let marks = totals(&mut driver, session).map_err(failed(global))?;
        let now = sums(&marks);
        if now != (keys, bytes) {
            return Err(anyhow!(
                "the cluster holds {} keys and {} bytes, and the backup has {} and {}: somebody else wrote to the cluster meanwhile; make it empty, and restore again while nobody does",
                grouped(now.0),
                grouped(now.1),
                grouped(keys),
                grouped(bytes)
            ));
        }
        let took = began.elapsed();
        if self.json {
            say_json(&json!({
                "backup": self.from.display().to_string(),
                "cluster": backup.manifest().origin.cluster,
                "date": backup.manifest().origin.date,
                "keys": keys,
                "bytes": bytes,
                "groups_before": backup.manifest().groups.len(),
                "groups": marks.len(),
                "verified_s": verified.as_secs_f64(),
                "took_s": took.as_secs_f64(),
            }))?;
        } else {
            crate::output::say(format!(
                "{} keys, {} bytes of cluster {}, {}, are in this cluster; groups: {}; in {:.1} s\n",
                grouped(keys),
                grouped(bytes),
                backup.manifest().origin.cluster,
                backup.manifest().origin.date,
                marks.len(),
                took.as_secs_f64()
            ))?;
        }
        Ok(Exit::Ok)
    }

    /// Verifies the backup, and that this cluster can hold it.
    fn verify(&self, backup: &Backup, driver: &Driver<AnyFabric>) -> anyhow::Result<()> {
        let reading = bar("verifying", backup.bytes());
        let shape = driver.shape();
        let mut needed: BTreeMap<GroupId, u64> = BTreeMap::new();
        let extent = backup.verify(&mut |record, read| {
            reading.set_position(read);
            let bytes = record.key.len() + record.value.map_or(0, <[u8]>::len);
            *needed.entry(shape.slots.owner(record.key)).or_default() +=
                bytes as u64 + PAIR_OVERHEAD;
        });
        reading.finish_and_clear();
        let extent = extent?;
        let from = self.from.display();
        let Limits { key_bytes_max, value_bytes_max, .. } = shape.limits;
        for (what, len, setting, max) in [
            ("key", extent.longest_key, "key_bytes_max", key_bytes_max),
            ("value", extent.longest_value, "value_bytes_max", value_bytes_max),
        ] {
            if len > max {
                return Err(usage(format_args!(
                    "the longest {what} in {from} has {len} bytes, and limits.{setting} of this cluster is {max}: nothing was written; start a cluster with a higher one"
                )));
            }
        }
        let ceiling = shape.limits.group_bytes_max(&shape.layout);
        if let Some((group, bytes)) = needed.iter().find(|(_, bytes)| **bytes > ceiling) {
            return Err(usage(format_args!(
                "group {} would hold {} bytes of {from}, and its ceiling is {}: nothing was written; start a cluster with a higher {}, or more groups and nodes",
                group.0,
                grouped(*bytes),
                grouped(ceiling),
                shape.limits.node_bytes_max().0
            )));
        }
        Ok(())
    }
}

fn check_empty(marks: &[Mark], global: &Global) -> anyhow::Result<()> {
    let (keys, _) = sums(marks);
    if keys == 0 {
        return Ok(());
    }
    Err(usage(format_args!(
        "the cluster holds {} keys, perhaps of a restore that was cut short, and only an empty one is filled: nothing was written; `skein{dir} down --wipe` and `skein{dir} up` make it empty, or name another cluster by --dir",
        grouped(keys),
        dir = global.dir_flag()
    )))
}

/// Number of keys, and length of all keys and values.
fn sums(marks: &[Mark]) -> (u64, u64) {
    marks.iter().fold((0, 0), |(keys, bytes), mark| (keys + mark.keys, bytes + mark.bytes))
}

/// What the groups hold, at one place in the order.
fn totals(driver: &mut Driver<AnyFabric>, session: SessionKey) -> Result<Vec<Mark>, Error> {
    let ticket = driver.mark(session)?;
    let mut reply = None;
    loop {
        let busy = driver.poll(&mut |of, result| {
            if of == ticket {
                reply = Some(result);
            }
        })?;
        if let Some(reply) = reply.take() {
            let unreadable = || Error::BadReply("the answer to a mark".to_owned());
            return Mark::of(&reply?).ok_or_else(unreadable);
        }
        if !busy {
            driver.wait(Duration::from_millis(10));
        }
    }
}

/// Writes pairs, many in a transaction and many transactions at a time. Each pair is written once, so their order does not
/// matter.
struct Load<'a> {
    driver: &'a mut Driver<AnyFabric>,
    session: SessionKey,
    /// The transaction that is being filled for each group, and the bytes of its pairs.
    filling: BTreeMap<GroupId, (Transaction, usize)>,
    /// Number of pairs in each transaction under way, and their bytes.
    under_way: BTreeMap<Ticket, (u64, usize)>,
    /// Bytes of all of them.
    bytes: usize,
    /// Number of pairs whose write was acknowledged.
    written: u64,
}

impl<'a> Load<'a> {
    fn new(driver: &'a mut Driver<AnyFabric>, session: SessionKey) -> Self {
        let (filling, under_way) = (BTreeMap::new(), BTreeMap::new());
        Self { driver, session, filling, under_way, bytes: 0, written: 0 }
    }

    fn all(&mut self, backup: &Backup, interrupt: &Interrupt) -> anyhow::Result<()> {
        let writing = bar("writing", backup.manifest().totals().0);
        for group in 0..backup.manifest().groups.len() as u16 {
            let mut pairs = backup.pairs(group)?;
            while let Some(record) = pairs.next()? {
                self.add(record.key, record.value.unwrap_or_default())?;
                writing.set_position(self.written);
                if interrupt.asked() {
                    return Err(anyhow!("interrupted"));
                }
            }
        }
        for (transaction, bytes) in std::mem::take(&mut self.filling).into_values() {
            self.submit(&transaction, bytes)?;
        }
        while !self.under_way.is_empty() {
            self.turn()?;
            writing.set_position(self.written);
        }
        writing.finish_and_clear();
        Ok(())
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let Limits { transaction_keys_max, transaction_bytes_max, .. } = self.driver.shape().limits;
        let owner = self.driver.shape().slots.owner(key);
        let bytes = key.len() + value.len() + OPERATION_OVERHEAD;
        let (transaction, filled) = self.filling.entry(owner).or_default();
        let most = TRANSACTION_BYTES.min(transaction_bytes_max / 2);
        let full = transaction.then.len() == transaction_keys_max || *filled + bytes > most;
        let whole = (full && !transaction.then.is_empty())
            .then(|| (std::mem::take(transaction), std::mem::take(filled)));
        transaction.then.push(Operation::Put { key: key.to_vec(), value: value.to_vec() });
        *filled += bytes;
        whole.map_or(Ok(()), |(transaction, bytes)| self.submit(&transaction, bytes))
    }

    fn submit(&mut self, transaction: &Transaction, bytes: usize) -> Result<(), Error> {
        while self.under_way.len() >= UNDER_WAY_MAX || self.bytes >= UNDER_WAY_BYTES_MAX {
            self.turn()?;
        }
        let ticket = loop {
            match self.driver.submit(self.session, transaction) {
                Err(Error::WindowFull { .. }) => self.turn()?,
                submitted => break submitted?,
            }
        };
        self.under_way.insert(ticket, (transaction.then.len() as u64, bytes));
        self.bytes += bytes;
        Ok(())
    }

    /// Takes the replies that have arrived, or waits a little.
    fn turn(&mut self) -> Result<(), Error> {
        let Self { under_way, bytes, written, .. } = self;
        let mut failed = Ok(());
        let busy = self.driver.poll(&mut |ticket, result| {
            let Some((pairs, freed)) = under_way.remove(&ticket) else { return };
            *bytes -= freed;
            match result {
                Ok(_) => *written += pairs,
                Err(error) => failed = Err(error),
            }
        })?;
        if !busy {
            self.driver.wait(Duration::from_millis(10));
        }
        failed
    }
}
