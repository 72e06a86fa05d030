//! etcd: its gRPC calls, with the part of HTTP/2 that they need.

use crate::sockets::{self, Speech};
use crate::{Asked, Came, Keys, Load, Outcome};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const FRAME: usize = 9;

struct Etcd {
    stream: u32,
    /// The call has returned a message, as only a successful one does.
    given: bool,
}

/// All clients connect to the first address.
pub(crate) fn run(addresses: &[&str], load: Load) -> Outcome<Came> {
    let client = |i: usize| {
        let etcd = Etcd { stream: 1, given: false };
        (addresses[0].to_owned(), etcd, Keys::of(i, load.clients, |_| true))
    };
    sockets::run((0..load.clients).map(client), load)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A header that is not added to the compression table.
fn header(name: &str, value: &str, out: &mut Vec<u8>) {
    out.push(0);
    for text in [name, value] {
        out.push(text.len() as u8);
        out.extend_from_slice(text.as_bytes());
    }
}

/// A field with fewer than 128 bytes.
fn field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[number << 3 | 2, bytes.len() as u8]);
    out.extend_from_slice(bytes);
}

impl Speech for Etcd {
    fn greet(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        frame(SETTINGS, 0, 0, &[], out);
        // A window so large that it is never exhausted.
        frame(WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes(), out);
    }

    fn ask(&mut self, asked: Asked, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let path = match asked {
            Asked::Put => "/etcdserverpb.KV/Put",
            Asked::Get => "/etcdserverpb.KV/Range",
        };
        let mut headers = Vec::new();
        for (name, value) in [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ] {
            header(name, value, &mut headers);
        }
        frame(HEADERS, END_HEADERS, self.stream, &headers, out);
        let mut message = Vec::new();
        field(1, key, &mut message);
        if asked == Asked::Put {
            field(2, value, &mut message);
        }
        let mut data = vec![0];
        data.extend_from_slice(&(message.len() as u32).to_be_bytes());
        data.extend_from_slice(&message);
        frame(DATA, END_STREAM, self.stream, &data, out);
        self.given = false;
    }

    fn hear(&mut self, heard: &mut Vec<u8>, out: &mut Vec<u8>) -> Option<bool> {
        while heard.len() >= FRAME {
            let len = u32::from_be_bytes([0, heard[0], heard[1], heard[2]]) as usize;
            if heard.len() < FRAME + len {
                return None;
            }
            let (kind, flags) = (heard[3], heard[4]);
            let stream = u32::from_be_bytes([heard[5], heard[6], heard[7], heard[8]]);
            let payload: Vec<u8> = heard.drain(..FRAME + len).skip(FRAME).collect();
            match kind {
                SETTINGS if flags & ACK == 0 => frame(SETTINGS, ACK, 0, &[], out),
                PING if flags & ACK == 0 => frame(PING, ACK, 0, &payload, out),
                GO_AWAY => return Some(false),
                DATA if stream == self.stream => self.given |= !payload.is_empty(),
                _ => {}
            }
            if stream == self.stream && [DATA, HEADERS].contains(&kind) && flags & END_STREAM != 0 {
                self.stream += 2;
                return Some(self.given);
            }
        }
        None
    }
}
