//! `skein report`: a page of the measured results.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use skein_report::page;

use crate::exit::{Exit, usage};
use crate::output::tell;

/// Makes one page, with figures, of the reports that benchmarks wrote with --json
///
/// The page is self-contained. Below each figure it lists its runs, and at the end the command, version,
/// machine and date of each. A file that is no report is named and left out; the exit code is then 1.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory with the reports: files that end with .json, each of one report or several
    #[arg(value_name = "DIR")]
    reports: PathBuf,
    /// Where to write the page [default: report.html in that directory]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Writes each figure to this directory, too, as a picture of its own
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        let files = reports(&self.reports)?;
        let page = page::page(&files);
        for (file, why) in &page.left_out {
            tell(format_args!("skein: {file} is left out: {why}"));
        }
        if page.left_out.len() == files.len() {
            let dir = self.reports.display();
            return Err(usage(format!(
                "no reports in {dir}: write some there, as by `skein bench multicast --json >{dir}/one.json`"
            )));
        }
        let output = self.output.unwrap_or_else(|| self.reports.join("report.html"));
        write(&output, &page.html)?;
        if let Some(dir) = &self.svg {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
            for (name, svg) in &page.pictures {
                write(&dir.join(name), svg)?;
            }
        }
        let (figures, from) = (page.pictures.len(), files.len() - page.left_out.len());
        let said = format!("{}: {figures} figures, from {from} files\n", output.display());
        crate::output::say(said)?;
        Ok(if page.left_out.is_empty() { Exit::Ok } else { Exit::No })
    }
}

/// Names and contents of the files that may be reports, sorted by name.
fn reports(dir: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let entries = fs::read_dir(dir)
        .map_err(|error| usage(format!("cannot read the directory {}: {error}", dir.display())))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", dir.display()))?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // A file that is not text is not a report, and is rejected as such later.
        files.push((name, String::from_utf8_lossy(&bytes).into_owned()));
    }
    files.sort();
    Ok(files)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
