//! Names the commit this was built from, so that binaries can tell whether they match.

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
    // A packager who builds from an archive can say which commit it is.
    let named = std::env::var("SKEIN_COMMIT").ok().filter(|name| !name.is_empty());
    let commit = named.or_else(|| {
        // The log of HEAD grows with each commit and each checkout. In a worktree it has a file of
        // its own; a path that does not exist would make cargo build this again every time.
        for file in ["HEAD", "logs/HEAD"] {
            if let Some(path) = git(&["rev-parse", "--git-path", file])
                && Path::new(&path).exists()
            {
                println!("cargo::rerun-if-changed={path}");
            }
        }
        // A repository around an unpacked archive is somebody else's.
        git(&["ls-files", "--error-unmatch", "build.rs"])?;
        git(&["rev-parse", "--short=12", "HEAD"])
    });
    println!("cargo::rustc-env=SKEIN_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}
