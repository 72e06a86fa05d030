//! `skein`: a replicated, sharded key-value store. One binary; thin commands over the libraries.

mod args;
mod cluster;
mod commands;
mod data;
mod exit;
mod logging;
mod output;
mod progress;
mod signals;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Skein::parse();
    let end = logging::start(args.global.verbose);
    exit::code(end.and_then(|()| args.command.run(&args.global)))
}
