//! The same benchmark of another commit, built in a worktree of its own, for a comparison.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

/// Prefix of a worktree's name, followed by its commit and the number of the process that made it.
const WORKTREE: &str = "skein-costs-of-";

/// The benchmark of another commit.
pub(super) struct Other {
    worktree: PathBuf,
    pub(super) program: PathBuf,
    /// The number of each of its cases, by name.
    pub(super) cases: BTreeMap<String, usize>,
}

impl Other {
    /// Builds the benchmark whose recorded costs are in `file` of the package at `package`, as of `commit`.
    /// The build directory is kept for the next time.
    ///
    /// # Errors
    /// The reason why it cannot be built.
    pub(super) fn build(commit: &str, package: &Path, file: &str) -> Result<Self, String> {
        let git =
            |arguments: &[&str]| said(Command::new("git").current_dir(package).args(arguments));
        let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
        let name = git(&["rev-parse", "--short=12", &format!("{commit}^{{commit}}")])?;
        for left in git(&["worktree", "list", "--porcelain"])?.lines().filter_map(left_behind) {
            // Git keeps a worktree locked while it makes it; removing a locked one takes a second `--force`.
            if let Err(why) = git(&["worktree", "remove", "--force", "--force", left]) {
                eprintln!("{left}, of a run that was killed, stays: {why}");
            }
        }
        let worktree = env::temp_dir().join(format!("{WORKTREE}{name}-{}", process::id()));
        let there =
            worktree.to_str().ok_or("the directory for temporary files has no name in UTF-8")?;
        git(&["worktree", "add", "--quiet", "--detach", there, &name])?;
        // From here on the worktree is removed, whatever fails.
        let mut other = Self { worktree, program: PathBuf::new(), cases: BTreeMap::new() };
        let same =
            other.worktree.join(package.strip_prefix(&top).map_err(|error| error.to_string())?);
        let recorded =
            fs::read_to_string(same.join(file)).map_err(|error| format!("{file}: {error}"))?;
        let names =
            recorded.lines().filter_map(|line| Some(line.trim().split_once("  ")?.1.to_owned()));
        other.cases = names.zip(0..).collect();
        let target = option_env!("CARGO_TARGET_TMPDIR").map_or_else(env::temp_dir, PathBuf::from);
        eprintln!("builds {name}");
        let built = said(
            Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .current_dir(&same)
                .env("CARGO_TARGET_DIR", target.join("costs-of-others"))
                .args(["bench", "--quiet", "--locked", "--bench", "costs", "--no-run"])
                .args(["--message-format", "json"]),
        )?;
        // The package's binaries are built, too.
        let bench = built.lines().find(|line| line.contains("\"kind\":[\"bench\"]"));
        let program =
            bench.and_then(|line| line.split_once("\"executable\":\"")?.1.split_once('"'));
        other.program = program.map(|(path, _)| path.into()).ok_or("cargo names no program")?;
        Ok(other)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let remove = ["worktree", "remove", "--force"];
        let _ = Command::new("git").args(remove).arg(&self.worktree).output();
    }
}

/// The worktree that a line of git's list names, if a run that was killed has left it behind. If another
/// process has that run's number meanwhile, a later run removes it.
fn left_behind(line: &str) -> Option<&str> {
    let worktree = line.strip_prefix("worktree ")?;
    let name = Path::new(worktree).file_name()?.to_str()?.strip_prefix(WORKTREE)?;
    let maker: u32 = name.rsplit_once('-')?.1.parse().ok()?;
    let runs = maker != process::id() && Path::new("/proc").join(maker.to_string()).exists();
    (!runs).then_some(worktree)
}

/// The output of a command that succeeds, or the reason why it failed.
fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{command:?}: {}", text(&output.stderr)))
    }
}
