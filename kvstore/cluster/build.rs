//! Records the commit of the build, so that binaries can compare their builds.

use std::path::Path;
use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SKEIN_COMMIT");
    // A packager who builds from an archive can set the commit.
    let named = std::env::var("SKEIN_COMMIT").ok().filter(|name| !name.is_empty());
    let commit = named.or_else(|| {
        // The log of HEAD grows with each commit and each checkout, and a worktree has its own. A path that does not
        // exist would make cargo rebuild every time.
        for file in ["HEAD", "logs/HEAD"] {
            if let Some(path) = git(&["rev-parse", "--git-path", file])
                && Path::new(&path).exists()
            {
                println!("cargo::rerun-if-changed={path}");
            }
        }
        // An archive may have been unpacked inside an unrelated repository.
        git(&["ls-files", "--error-unmatch", "build.rs"])?;
        git(&["rev-parse", "--short=12", "HEAD"])
    });
    println!("cargo::rustc-env=SKEIN_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}
