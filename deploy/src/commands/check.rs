//! `skein check`: whether a recorded history is one that a correct cluster can produce.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;
use skein_checker::chart::{Paint, grouped};
use skein_checker::check::{Checker, ElleModel, OrderReport};
use skein_checker::history::Reader;
use skein_checker::verify::Judgement;

use crate::exit::{Exit, usage};

/// Checks a recorded history for strict serializability
///
/// The history is one that a benchmark has recorded with --history FILE (docs/histories.md). It is
/// correct if its transactions can have executed one after the other, each between its invocation and
/// its answer (docs/check.md). If not, the violation is printed with the transactions and the reasons,
/// and the exit code is 1. A history without answers cannot be judged, and the exit code is 2. The
/// search for an order is bounded: if it finds neither a violation nor an order, the exit code is 4.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The history
    #[arg(value_name = "FILE")]
    history: PathBuf,
    /// Writes the history for Jepsen's Elle too: NAME.list-append.edn and NAME.rw-register.edn
    #[arg(long, value_name = "NAME")]
    edn: Option<PathBuf>,
    /// Prints one JSON object in place of the report
    #[arg(long)]
    json: bool,
}

/// The report on a history.
#[derive(Serialize)]
struct Report {
    history: PathBuf,
    workload: String,
    skein: String,
    good: bool,
    /// Time to read and check the history.
    took_s: f64,
    /// Judgement on single keys, replicas and bank sums.
    verdict: Judgement,
    /// Judgement on all transactions together.
    order: OrderReport,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let clock = Instant::now();
        let reader = Reader::open(&self.history).map_err(usage)?;
        let header = reader.header.clone();
        let (verdict, mut checker) = skein_checker::judge(reader).map_err(usage)?;
        if let Some(name) = &self.edn {
            for model in [ElleModel::ListAppend, ElleModel::RwRegister] {
                write_edn(&mut checker, model, name)?;
            }
        }
        let order = checker.finish();
        let broken = verdict.wrong.keys().all(|kind| *kind == "history");
        if order.answered == 0 && broken && !order.is_wrong() {
            let (path, asked) = (self.history.display(), verdict.operations);
            return Err(usage(format!(
                "{path}: nothing to judge: of {asked} operations none was answered. Record a history of a cluster that answers"
            )));
        }
        let report = Report {
            workload: header.workload,
            skein: header.skein,
            good: verdict.is_good() && order.strictly_serializable,
            took_s: (clock.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            history: self.history,
            verdict,
            order,
        };
        if self.json {
            crate::output::say(serde_json::to_string(&report)? + "\n")?;
        } else {
            crate::output::say(report.text(std::io::stdout().is_terminal()))?;
        }
        Ok(report.exit())
    }
}

fn write_edn(checker: &mut Checker, model: ElleModel, name: &Path) -> anyhow::Result<()> {
    let mut file = name.as_os_str().to_owned();
    file.push(format!(".{}.edn", model.name()));
    let path = PathBuf::from(file);
    let written = File::create_new(&path).map(BufWriter::new).and_then(|mut out| {
        checker.write_edn(model, &mut out)?;
        out.flush()
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}

impl Report {
    fn exit(&self) -> Exit {
        match self.good {
            true if self.order.is_open() => Exit::Undecided,
            true => Exit::Ok,
            false => Exit::No,
        }
    }

    fn text(&self, colour: bool) -> String {
        let paint = Paint(colour);
        use std::fmt::Write as _;
        let mut text = String::new();
        let Judgement { operations, acknowledged, failed, unknown, replicas, .. } = self.verdict;
        let _ = writeln!(
            text,
            "{}   {}, recorded with skein {}",
            paint.strong(&self.history.display().to_string()),
            self.workload,
            self.skein
        );
        let _ = writeln!(
            text,
            "  operations  {}, {} acknowledged, {} failed, {} unknown",
            grouped(operations),
            grouped(acknowledged),
            grouped(failed),
            grouped(unknown)
        );
        let keys =
            self.order.keys.iter().map(|(kind, count)| format!("{} {kind}", grouped(*count)));
        let keys: Vec<String> = keys.collect();
        let _ = writeln!(text, "  keys        {}", keys.join(", "));
        let _ = writeln!(
            text,
            "  order       {} transactions, {} reasons for one to come before another",
            grouped(self.order.transactions),
            grouped(self.order.edges)
        );
        let _ = writeln!(text, "              {}", self.order.basis());
        if replicas > 0 {
            let _ = writeln!(text, "  replicas    {replicas}, each at the end");
        }
        let _ = writeln!(text, "  took        {} s\n", self.took_s);
        for (kind, count) in &self.verdict.wrong {
            let _ = writeln!(text, "  {}", paint.bad(&format!("{} × {kind}", grouped(*count))));
        }
        self.verdict.evidence.iter().for_each(|piece| _ = writeln!(text, "    {piece}"));
        text.push_str(&self.order.text(paint));
        if self.good {
            let verdict = self.order.verdict();
            let open = self.order.is_open();
            let verdict = if open { paint.strong(verdict) } else { paint.good(verdict) };
            let _ = writeln!(text, "  {verdict}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_decided_is_neither_right_nor_wrong() {
        for (decided, right, exit) in [
            (true, true, Exit::Ok),
            (false, true, Exit::Undecided),
            (true, false, Exit::No),
            (false, false, Exit::No),
        ] {
            let report = Report {
                history: "run.jsonl".into(),
                workload: "chaos".into(),
                skein: "test".into(),
                good: right,
                took_s: 0.0,
                verdict: Judgement::default(),
                order: OrderReport {
                    decided,
                    serializable: right,
                    strictly_serializable: right,
                    ..OrderReport::default()
                },
            };
            let text = report.text(false);
            assert_eq!(report.exit(), exit, "{text}");
            assert_eq!(text.contains("  strictly serializable"), decided && right, "{text}");
            assert_eq!(text.contains("nothing found wrong, and not decided"), !decided && right);
        }
    }
}
