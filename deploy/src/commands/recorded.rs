//! Recorded benchmarks: the history of all operations, and the final values.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use skein_checker::history::{BankHeader, FORMAT, Header, Record, RecordHeader, Recorder, now};
use skein_client::Driver;
use skein_fabric::any::AnyFabric;
use skein_workloads::bench::{Cluster, Phase, Watch};
use skein_workloads::chaos::state::Survey;
use skein_workloads::generator::{self, Settings};
use skein_workloads::recorded::Recorded;

/// Many operations in flight, because these reads are not measured.
const MANY: Settings = Settings::to_the_end(8, 8);

/// The workload that a history's header describes.
pub(super) struct About {
    pub(super) workload: String,
    pub(super) seed: u64,
    pub(super) bank: Option<BankHeader>,
    pub(super) record: Option<RecordHeader>,
    /// Whether keys may have values from before the history.
    pub(super) before: bool,
}

/// A history that is being written.
pub(super) struct Recording {
    recorder: Recorder,
    path: PathBuf,
    record: Option<RecordHeader>,
}

impl Recording {
    /// Begins a history at `path`, which must not exist.
    pub(super) fn begin(path: &Path, cluster: &Cluster, about: About) -> anyhow::Result<Self> {
        let About { workload, seed, bank, record, before } = about;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = Header {
            format: FORMAT,
            workload,
            skein: cluster.skein.clone(),
            cluster: cluster.topology,
            seed,
            t: now(),
            unix_ms: since.as_millis() as u64,
            token_bytes: 1, // There are no lists.
            bank,
            record,
            before,
        };
        let recorder = Recorder::create(path, header)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { recorder, path: path.to_owned(), record })
    }

    /// Sessions whose operations are recorded.
    pub(super) fn of<'a>(
        &self,
        driver: &'a mut Driver<AnyFabric>,
    ) -> Recorded<&'a mut Driver<AnyFabric>> {
        Recorded::new(driver, self.recorder.scribe(), self.record)
    }

    /// Reads the final value of every key in the history, and ends the history.
    pub(super) fn end(
        self,
        driver: &mut Driver<AnyFabric>,
        watch: &mut impl Watch,
    ) -> anyhow::Result<()> {
        let keys: Vec<String> = self.recorder.keys().into_iter().collect();
        watch.begin(Phase::Load(keys.len() as u64));
        let mut survey = Survey::new(keys, MANY.clients, self.record);
        let done =
            generator::run(driver, &mut survey, MANY, &mut |progress| watch.progress(progress));
        let mut scribe = self.recorder.scribe();
        survey.found.into_iter().for_each(|found| scribe.note(Record::Final(found)));
        drop(scribe);
        let path = self.path.display();
        self.recorder.finish().with_context(|| format!("cannot write {path}"))?;
        if let Some(why) = done.ended_early.or(done.errors.first) {
            bail!("{path} lacks what stands at some keys: reading them back: {why}");
        }
        Ok(())
    }
}
