//! Clients of a store that is reached over TCP: one connection each, one operation in flight.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};

use crate::{Asked, Came, Keys, Load, Outcome, VALUE, histogram};

/// The protocol of a store. One instance per connection.
pub(crate) trait Speech {
    /// Appends the first bytes of a connection.
    fn greet(&mut self, out: &mut Vec<u8>);
    /// Appends an operation.
    fn ask(&mut self, asked: Asked, key: &[u8], value: &[u8], out: &mut Vec<u8>);
    /// Takes received bytes. Returns `Some` when the operation has ended, with whether it
    /// succeeded. Bytes to send at once are appended to `out`.
    fn hear(&mut self, heard: &mut Vec<u8>, out: &mut Vec<u8>) -> Option<bool>;
}

struct Client<S> {
    stream: TcpStream,
    speech: S,
    keys: Keys,
    heard: Vec<u8>,
    since: Instant,
}

impl<S: Speech> Client<S> {
    fn ask(&mut self, asked: Asked, key: &[u8]) -> Outcome<()> {
        let mut out = Vec::new();
        self.speech.ask(asked, key, &VALUE, &mut out);
        self.since = Instant::now();
        Ok(self.stream.write_all(&out)?)
    }

    /// Receives bytes. Returns `Some` when the operation has ended, with whether it succeeded.
    fn hear(&mut self) -> Outcome<Option<bool>> {
        let mut bytes = [0; 4096];
        let mut out = Vec::new();
        match self.stream.read(&mut bytes) {
            Ok(0) => return Err("the store has closed a connection".into()),
            Ok(len) => self.heard.extend_from_slice(&bytes[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let over = self.speech.hear(&mut self.heard, &mut out);
        if !out.is_empty() {
            self.stream.write_all(&out)?;
        }
        Ok(over)
    }
}

/// Puts all keys, then runs `load`, with clients given as address, protocol and keys.
pub(crate) fn run<S: Speech>(
    clients: impl IntoIterator<Item = (String, S, Keys)>,
    load: Load,
) -> Outcome<Came> {
    let mut all = Vec::new();
    for (address, mut speech, keys) in clients {
        let mut stream = TcpStream::connect(&*address).map_err(|e| format!("{address}: {e}"))?;
        stream.set_nodelay(true)?;
        let mut out = Vec::new();
        speech.greet(&mut out);
        stream.write_all(&out)?;
        all.push(Client { stream, speech, keys, heard: Vec::new(), since: Instant::now() });
    }
    let fill = |client: &mut Client<S>| match client.keys.next() {
        Some(key) => client.ask(Asked::Put, &key).map(|()| true),
        None => Ok(false),
    };
    drive(&mut all, fill)?;
    let until = Instant::now() + load.time;
    let ask = |client: &mut Client<S>| {
        let (asked, key) = client.keys.draw(load);
        let more = Instant::now() < until;
        if more { client.ask(asked, &key).map(|()| true) } else { Ok(false) }
    };
    let began = Instant::now();
    let mut came = drive(&mut all, ask)?;
    came.seconds = began.elapsed().as_secs_f64();
    Ok(came)
}

/// Runs operations of every client until it has none left.
fn drive<S: Speech>(
    clients: &mut [Client<S>],
    mut ask: impl FnMut(&mut Client<S>) -> Outcome<bool>,
) -> Outcome<Came> {
    let mut came = Came { nanoseconds: histogram(), seconds: 0.0, errors: 0, led_anew: None };
    let mut under_way = Vec::new();
    for client in clients.iter_mut() {
        under_way.push(ask(client)?);
    }
    while under_way.contains(&true) {
        let ready: Vec<bool> = {
            let mut waiting: Vec<_> =
                clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::IN)).collect();
            poll(&mut waiting, None)?;
            waiting.iter().map(|one| !one.revents().is_empty()).collect()
        };
        for (i, client) in clients.iter_mut().enumerate().filter(|(i, _)| ready[*i]) {
            if let Some(done) = client.hear()? {
                came.errors += u64::from(!done);
                came.nanoseconds.saturating_record(client.since.elapsed().as_nanos() as u64);
                under_way[i] = ask(client)?;
            }
        }
    }
    Ok(came)
}
