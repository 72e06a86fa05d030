//! One file per command: a `clap::Args` struct named `Args`, and its execution in `Args::run`.

use clap::Subcommand;

use crate::args::Global;
use crate::exit::Exit;
use crate::logging::Audience;

mod admin;
mod append;
mod backup;
mod bench;
mod cas;
mod chaos;
mod check;
mod closing;
mod completions;
mod config;
mod del;
mod demo;
mod doctor;
mod down;
mod exists;
mod get;
mod incr;
mod init;
mod inspect;
mod last_words;
mod multicast;
mod node;
mod pki;
mod put;
mod recorded;
mod report;
mod restore;
mod scan;
mod screen;
mod sim;

mod status;
mod status_table;
mod status_tree;
mod supervise;
mod txn;
pub(crate) mod up;

/// The commands, in the order of `--help`.
#[derive(Subcommand)]
pub(crate) enum Command {
    // Clusters
    Up(up::Args),
    Down(down::Args),
    Status(status::Args),
    Init(init::Args),
    Node(node::Args),
    Pki(pki::Args),
    Supervise(supervise::Args),
    Admin(admin::Args),
    Config(config::Args),
    // Data
    Get(get::Args),
    Put(put::Args),
    Del(del::Args),
    Exists(exists::Args),
    Cas(cas::Args),
    Incr(incr::Args),
    Append(append::Args),
    Scan(scan::Args),
    Txn(txn::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    // Measurements and checks
    Bench(bench::Args),
    Report(report::Args),
    Check(check::Args),
    Demo(demo::Args),
    Sim(sim::Args),
    Inspect(inspect::Args),
    // This binary
    Doctor(doctor::Args),
    Completions(completions::Args),
}

impl Command {
    /// The audience of its log.
    pub(crate) fn audience(&self) -> Audience {
        match self {
            Self::Up(up::Args { background: true, .. })
            | Self::Supervise(supervise::Args { background: true, .. }) => Audience::File,
            Self::Node(_) => Audience::Service,
            Self::Sim(_) => Audience::Simulation,
            Self::Bench(args) if args.runs_replicas_of_its_own() => Audience::Experiment,
            Self::Get(_)
            | Self::Put(_)
            | Self::Del(_)
            | Self::Exists(_)
            | Self::Cas(_)
            | Self::Incr(_)
            | Self::Append(_)
            | Self::Scan(_)
            | Self::Txn(_)
            | Self::Backup(_)
            | Self::Restore(_) => Audience::Client,
            _ => Audience::Person,
        }
    }

    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        match self {
            // Clusters
            Self::Up(args) => args.run(global),
            Self::Down(args) => args.run(global),
            Self::Status(args) => args.run(global),
            Self::Init(args) => args.run(global),
            Self::Node(args) => args.run(global),
            Self::Pki(args) => args.run(global),
            Self::Supervise(args) => args.run(global),
            Self::Admin(args) => args.run(global),
            Self::Config(args) => args.run(global),
            // Data
            Self::Get(args) => args.run(global),
            Self::Put(args) => args.run(global),
            Self::Del(args) => args.run(global),
            Self::Exists(args) => args.run(global),
            Self::Cas(args) => args.run(global),
            Self::Incr(args) => args.run(global),
            Self::Append(args) => args.run(global),
            Self::Scan(args) => args.run(global),
            Self::Txn(args) => args.run(global),
            Self::Backup(args) => args.run(global),
            Self::Restore(args) => args.run(global),
            // Measurements and checks
            Self::Bench(args) => args.run(global),
            Self::Report(args) => args.run(),
            Self::Check(args) => args.run(),
            Self::Demo(args) => args.run(global),
            Self::Sim(args) => args.run(),
            Self::Inspect(args) => args.run(),
            // This binary
            Self::Doctor(args) => args.run(global),
            Self::Completions(args) => args.run(global),
        }
    }
}
