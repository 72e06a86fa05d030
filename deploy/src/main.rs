//! `skein`: a replicated, sharded key-value store. One binary; thin commands over the libraries.

mod args;
mod background;
mod commands;
mod data;
mod exit;
mod held_up;
mod logging;
#[cfg(feature = "mutants")]
mod mutants;
mod output;
mod own;
mod ports;
mod progress;
mod shape;
mod signals;

use std::process::ExitCode;

use clap::Parser;

/// Nodes and clients allocate mostly small objects: values, replies, requests.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args = args::Skein::parse();
    let end = logging::start(args.global.verbose, args.command.audience());
    #[cfg(feature = "mutants")]
    let end = end.and_then(|()| mutants::plant());
    let code = exit::code(end.and_then(|()| args.command.run(&args.global)));
    logging::flush();
    code
}
