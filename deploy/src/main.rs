//! `skein`: a replicated, sharded key-value store. One binary; thin commands over the libraries.

mod args;
mod commands;
mod exit;
mod output;
mod progress;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Skein::parse();
    exit::code(args.command.run(&args.global))
}
