//! `skein pki`: the certificates of a cluster on several hosts.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use clap::Subcommand;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use skein_cluster::config::Draft;
use skein_cluster::directory::Directory;
use skein_cluster::network::{AUTHORITY, Who};
use skein_multicast::config::Topology;

use crate::args::Global;
use crate::exit::{Exit, usage};
use crate::output::tell;

/// The authority's key. Its holder can admit anyone to the cluster.
const AUTHORITY_KEY: &str = "authority.key";
/// Certificates are valid from this long before their creation, which tolerates differences between
/// the clocks of hosts.
const EARLIER: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
/// Validity of an authority in days.
const AUTHORITY_DAYS: u64 = 3_650;

/// Makes the certificates of a cluster on several hosts
///
/// A cluster has an authority of its own. Make all certificates where its key is, and give each host
/// authority.pem and its own nodeN.pem and nodeN.key (clients: client.pem and client.key), in the
/// directory that network.certificates names. The authority's key stays.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Makes an authority
    Init(Where),
    /// Makes the certificate of a node
    Node {
        /// Which node, from 0
        node: u16,
        #[command(flatten)]
        place: Where,
        #[command(flatten)]
        terms: Terms,
    },
    /// Makes a certificate for clients
    Client {
        #[command(flatten)]
        place: Where,
        #[command(flatten)]
        terms: Terms,
    },
}

#[derive(clap::Args)]
struct Terms {
    /// For how many days it is good
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u64).range(1..=3650))]
    days: u64,

    /// Replaces one that is there
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
struct Where {
    /// The directory for certificates and keys
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let made = match self.action {
            Action::Init(place) => init(&place.out)?,
            Action::Node { node, place, terms } => {
                let warning = check_number(node, &place.out, global)?;
                let made = issue(Who::Node(node), &place.out, &terms)?;
                if let Some(warning) = warning {
                    tell(warning);
                }
                made
            }
            Action::Client { place, terms } => issue(Who::Client, &place.out, &terms)?,
        };
        crate::output::say(made)?;
        Ok(Exit::Ok)
    }
}

/// Refuses a node number that the cluster does not have, if the command line names the cluster.
/// Returns a warning if the number is not the next one.
fn check_number(node: u16, out: &Path, global: &Global) -> anyhow::Result<Option<String>> {
    let named = global.dir_if_named();
    if let Some((nodes, place)) = named.as_deref().and_then(|dir| Some((nodes_of(dir)?, dir))) {
        if node >= nodes {
            return Err(usage(format_args!(
                "no node {node}: the cluster of {} has {nodes}, numbered from 0",
                place.display()
            )));
        }
        return Ok(None);
    }
    if node >= Topology::NODES_MAX {
        let (most, last) = (Topology::NODES_MAX, Topology::NODES_MAX - 1);
        return Err(usage(format_args!(
            "no node {node}: a cluster has at most {most} nodes, numbered from 0 to {last}"
        )));
    }
    let before = node.checked_sub(1).map(|before| format!("{}.pem", Who::Node(before).name()));
    Ok(before.filter(|before| !out.join(before).exists()).map(|before| {
        format!(
            "warning: there is no {before} in {}, and the nodes of a cluster are numbered from 0 without \
             gaps: this certificate is of use only in a cluster of more than {node} nodes; --dir with \
             the TOML file of the cluster has the number checked",
            out.display()
        )
    }))
}

/// Number of nodes of the cluster with this directory or shared file.
fn nodes_of(place: &Path) -> Option<u16> {
    if place.is_file() {
        return Some(Draft::read(place).ok()?.finish().ok()?.topology.nodes);
    }
    Some(Directory::at(place).ok()?.manifest().ok()?.nodes)
}

/// A certificate and its key, PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// An authority, and the issuer of its certificates.
pub(super) fn authority() -> anyhow::Result<(Pair, Issuer<'static, KeyPair>)> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "authority of a Skein cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    be_good_for(&mut params, AUTHORITY_DAYS);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok((Pair { certificate, key: key.serialize_pem() }, Issuer::new(params, key)))
}

/// A certificate for `name`.
pub(super) fn certificate(
    name: &str,
    issuer: &Issuer<'_, KeyPair>,
    days: u64,
) -> anyhow::Result<Pair> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    be_good_for(&mut params, days);
    let key = KeyPair::generate()?;
    Ok(Pair { certificate: params.signed_by(&key, issuer)?.pem(), key: key.serialize_pem() })
}

fn init(out: &Path) -> anyhow::Result<String> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(out)
        .with_context(|| format!("cannot make {}", out.display()))?;
    let (Pair { certificate, key }, _) = authority()?;
    let (pem, key_path) = (out.join(AUTHORITY), out.join(AUTHORITY_KEY));
    // The key first: a certificate without its key is useless.
    write_new(&key_path, &key, 0o600)?;
    write_new(&pem, &certificate, 0o644).inspect_err(|_| _ = fs::remove_file(&key_path))?;
    Ok(format!("{} goes to every host; {} stays where it is\n", pem.display(), key_path.display()))
}

fn issue(who: Who, out: &Path, terms: &Terms) -> anyhow::Result<String> {
    let (name, days) = (who.name(), terms.days);
    let [pem, key_path] = ["pem", "key"].map(|kind| out.join(format!("{name}.{kind}")));
    if let Some(there) = [&pem, &key_path].into_iter().find(|path| path.exists() && !terms.force) {
        return Err(usage(format_args!(
            "{} is there already: --force replaces it and its key, which must then be distributed \
             again",
            there.display()
        )));
    }
    let read = |file: &str| {
        let path = out.join(file);
        fs::read_to_string(&path).map_err(|error| {
            usage(format!(
                "cannot read {}: {error}; `skein pki init --out {}` makes an authority",
                path.display(),
                out.display()
            ))
        })
    };
    let unusable = |file: &str| format!("{} cannot be used", out.join(file).display());
    let key = KeyPair::from_pem(&read(AUTHORITY_KEY)?).with_context(|| unusable(AUTHORITY_KEY))?;
    let issuer = Issuer::from_ca_cert_pem(&read(AUTHORITY)?, key);
    let issuer = issuer.with_context(|| unusable(AUTHORITY))?;
    let made = certificate(&name, &issuer, days)?;
    replace(&key_path, &made.key, 0o600)?;
    replace(&pem, &made.certificate, 0o644)?;
    let plural = if days == 1 { "" } else { "s" };
    Ok(format!("{} and {}, good for {days} day{plural}\n", pem.display(), key_path.display()))
}

fn be_good_for(params: &mut CertificateParams, days: u64) {
    let now = SystemTime::now();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + DAY * days as u32).into();
}

/// Creates a file, which must not exist: replacing an authority invalidates all its certificates.
fn write_new(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    match write_whole(path, text, mode) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(usage(format!(
            "{} is there already; its certificates are not valid with another: name another directory, or remove it first",
            path.display()
        ))),
        written => written.with_context(|| format!("cannot write {}", path.display())),
    }
}

fn replace(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let early = path.with_extension("new");
    // Left by an earlier attempt.
    let _ = fs::remove_file(&early);
    let written = write_whole(&early, text, mode).and_then(|()| fs::rename(&early, path));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Creates a file, which must not exist. If there is no room for all of it, the file is removed.
fn write_whole(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes()).inspect_err(|_| _ = fs::remove_file(path))
}
