//! `skein backup`: writes everything that a cluster holds at one place in its order to a directory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use serde_json::json;
use skein_backup::{BackupError, BackupWriter, Origin};
use skein_checker::chart::grouped;
use skein_client::backup::{Backup, BackupFailure, Progress, Sink};
use skein_client::{Driver, Error};
use skein_cluster::directory::Directory;
use skein_workloads::report::date;

use crate::args::Global;
use crate::data::{failed, say_done, say_json_done};
use crate::exit::Exit;
use crate::progress::{Interrupt, bar};

/// Time that a mark may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Writes everything that the cluster holds to a directory, while it serves
///
/// All of it is of one place in the order: no transaction is in it by halves, and everything is in it that was
/// acknowledged before the backup began. The directory is made, or is empty. Its file MANIFEST is written last, after all
/// files were read back and compared with what the groups held; without it, a backup is incomplete and is not restored.
/// `skein restore` fills a new cluster from it, of any number of groups.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory to write to
    #[arg(value_name = "BACKUP")]
    to: PathBuf,
    /// Prints a JSON report
    #[arg(long)]
    json: bool,
}

/// A backup that is whole.
struct Taken {
    written: skein_backup::Backup,
    progress: Progress,
    copied: Duration,
    took: Duration,
}

/// Writes what the client takes.
struct Files<'a>(&'a mut BackupWriter);

impl Sink for Files<'_> {
    type Error = BackupError;

    fn begin(&mut self, group: u16) -> Result<(), BackupError> {
        self.0.begin(group)
    }

    fn walk(&mut self, group: u16, records: &[u8]) -> Result<(), BackupError> {
        self.0.walk(group, records)
    }

    fn change(&mut self, group: u16, records: &[u8]) -> Result<(), BackupError> {
        self.0.change(group, records)
    }
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let interrupt = Interrupt::listen()?;
        let cluster = Directory::connect(&global.dir())?;
        let mut driver = Driver::to(&cluster)?;
        driver.set_timeout(TIMEOUT);
        let origin = Origin {
            cluster: cluster.manifest.cluster.clone(),
            build: skein_cluster::BUILD.text().to_owned(),
            date: date::now(),
            durability: cluster.config.durability.name().to_owned(),
            limits: cluster.config.limits,
        };
        let mut writer =
            BackupWriter::create(&self.to, cluster.config.topology.groups, rand::random())?;
        let taken = self.take(&mut driver, &mut writer, origin, &interrupt, global);
        if taken.is_err()
            && let Err(left) = writer.abandon()
        {
            let what = format!("what was written to {} could not be removed", self.to.display());
            return taken.map(|_| Exit::Ok).with_context(|| format!("{what}: {left}"));
        }
        self.report(&taken?)?;
        Ok(Exit::Ok)
    }

    fn take(
        &self,
        driver: &mut Driver<skein_fabric::any::AnyFabric>,
        writer: &mut BackupWriter,
        origin: Origin,
        interrupt: &Interrupt,
        global: &Global,
    ) -> anyhow::Result<Taken> {
        let began = Instant::now();
        let mut backup = Backup::begin(driver).map_err(failed(global))?;
        let copying = bar("copying", backup.progress().bytes);
        let marks = loop {
            let step = backup.step(&mut Files(&mut *writer));
            match step.map_err(|why| self.explained(why, global))? {
                Some(marks) => break marks,
                None if interrupt.asked() => {
                    return Err(anyhow!("interrupted").context(self.removed()));
                }
                None => {}
            }
            let progress = backup.progress();
            copying.set_position(progress.walked);
            if progress.changed > 0 {
                copying.set_message(format!("{} bytes of changes", grouped(progress.changed)));
            }
        };
        let progress = backup.progress();
        copying.finish_and_clear();
        backup.end().map_err(failed(global))?;
        let copied = began.elapsed();
        let reading = bar("reading back", 0);
        let written = writer.finish(origin, &marks, &mut |bytes, all| {
            reading.set_length(all);
            reading.set_position(bytes);
        });
        reading.finish_and_clear();
        let written = written.with_context(|| self.removed())?;
        Ok(Taken { written, progress, copied, took: began.elapsed() })
    }

    /// Says what the backup holds. It is whole, whether that is heard or not.
    fn report(&self, taken: &Taken) -> anyhow::Result<()> {
        let Taken { written, progress, copied, took } = taken;
        let manifest = written.manifest();
        let (keys, bytes) = manifest.totals();
        let done = format!("the backup in {} is whole", self.to.display());
        if self.json {
            let report = json!({
                "backup": self.to.display().to_string(),
                "manifest": manifest,
                "keys": keys,
                "bytes": bytes,
                "file_bytes": written.bytes(),
                "changed_bytes": progress.changed,
                "copies_begun_anew": progress.failures,
                "copied_s": copied.as_secs_f64(),
                "took_s": took.as_secs_f64(),
            });
            return say_json_done(done, &report);
        }
        let line = format!(
            "{}: {} keys, {} bytes; groups: {}; verified, in {:.1} s\n",
            self.to.display(),
            grouped(keys),
            grouped(bytes),
            manifest.groups.len(),
            took.as_secs_f64()
        );
        say_done(done, line)
    }

    fn explained(&self, why: BackupFailure<BackupError>, global: &Global) -> anyhow::Error {
        let cluster = |error: Error| failed(global)(error);
        match why {
            BackupFailure::Cluster(error) => cluster(error),
            BackupFailure::Sink(error) => error.into(),
            other => other.into(),
        }
        .context(self.removed())
    }

    fn removed(&self) -> String {
        format!("no backup was made, and what was written to {} was removed", self.to.display())
    }
}
