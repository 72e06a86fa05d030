//! Redis, alone, with replicas, and as a cluster.

use skein_kvstore::slots::{SLOTS, slot_of};

use crate::sockets::{self, Speech};
use crate::{Asked, Came, Keys, Load, Outcome, key};

/// Replicas that must have a write, and the timeout in milliseconds.
const WAIT: [&str; 3] = ["WAIT", "1", "1000"];

struct Redis {
    wait: bool,
    /// Replies still to come.
    awaited: u32,
    good: bool,
}

/// Each client connects to one of `addresses`, which own equal parts of the hash slots in this
/// order.
pub(crate) fn run(addresses: &[&str], wait: bool, load: Load) -> Outcome<Came> {
    let parts = addresses.len();
    let part = |number| usize::from(slot_of(&key(number)).0) * parts / usize::from(SLOTS);
    let client = |i: usize| {
        let own = i % parts;
        let redis = Redis { wait, awaited: 0, good: true };
        let sharing = (own..load.clients).step_by(parts).len();
        let keys = Keys::of(i / parts, sharing, |number| part(number) == own);
        (addresses[own].to_owned(), redis, keys)
    };
    sockets::run((0..load.clients).map(client), load)
}

fn command(words: &[&[u8]], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

impl Speech for Redis {
    fn greet(&mut self, _: &mut Vec<u8>) {}

    fn ask(&mut self, asked: Asked, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        (self.awaited, self.good) = (1, true);
        match asked {
            Asked::Get => command(&[b"GET", key], out),
            Asked::Put => command(&[b"SET", key, value], out),
        }
        if self.wait && asked == Asked::Put {
            self.awaited = 2;
            command(&WAIT.map(str::as_bytes), out);
        }
    }

    fn hear(&mut self, heard: &mut Vec<u8>, _: &mut Vec<u8>) -> Option<bool> {
        while let Some((len, good)) = reply(heard) {
            heard.drain(..len);
            self.good &= good;
            self.awaited -= 1;
            if self.awaited == 0 {
                return Some(self.good);
            }
        }
        None
    }
}

/// The length of the first reply, and whether it reports success.
fn reply(heard: &[u8]) -> Option<(usize, bool)> {
    let end = heard.windows(2).position(|two| two == b"\r\n")?;
    let line = &heard[1..end];
    let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    match heard[0] {
        b'+' => Some((end + 2, true)),
        // The number of replicas that have the write.
        b':' => Some((end + 2, number()? > 0)),
        b'$' => match usize::try_from(number()?) {
            Ok(len) if heard.len() >= end + 4 + len => Some((end + 4 + len, true)),
            Ok(_) => None,
            Err(_) => Some((end + 2, false)),
        },
        _ => Some((end + 2, false)),
    }
}
