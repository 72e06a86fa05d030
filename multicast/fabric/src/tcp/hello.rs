//! The handshake: the first messages of a connection.
//!
//! The caller sends a hello, and the called process answers. Both messages begin alike in every version, so that a
//! process of another version receives a clear refusal:
//!
//! ```text
//!  0 "skeintcp" │ version: u32 │ kind: u16 │ len: u16 │ body of `len` bytes
//!
//!  hello     incarnation: u64 │ meeting: u64 │ card: u8 │
//!            cluster, from, to: each a byte of length, and text │ constants
//!  welcome   incarnation: u64 │ meeting: u64 │ card: u8
//!  later     (nothing: we are about to meet, or have met)
//!  refused   text: why
//! ```
//!
//! A process counts its *meetings* with another: the number rises when one has ended. So a late hello of a call that
//! was given up long ago is distinguished from one that begins a new meeting. `card` is 1 where this is the control
//! channel of a fabric of RDMA cards. `constants` are the values that must be equal at all processes of a cluster, see
//! [`Constants`]: a caller with a different value is refused.

use std::io;
use std::time::Instant;

use super::stream::Stream;
use super::tls;
use crate::{Constants, is_name};

/// Raised with every change of the handshake or of frames.
const VERSION: u32 = 4;
const MAGIC: &[u8; 8] = b"skeintcp";
const HEAD: usize = 16;
/// A hello with its constants takes about two kilobytes.
const BODY_MAX: usize = 8 << 10;

/// A caller's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) cluster: String,
    pub(super) constants: Constants,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) side: Side,
}

/// One side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    /// Its incarnation.
    pub(super) incarnation: u64,
    /// How many meetings with the other side have ended.
    pub(super) meeting: u64,
    /// Whether it has an RDMA card, and this is its control channel.
    pub(super) card: bool,
}

/// The answer to a hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Welcome(Side),
    /// Nothing is wrong: there is, or will be, another connection.
    Later,
    /// Something is wrong, and will be the next time too.
    Refused(String),
}

/// Why two processes did not connect.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotMet {
    /// No process is there, or none answers.
    #[error("{0}")]
    Absent(io::Error),
    #[error("it connects to us")]
    Later,
    /// One side refuses the other.
    #[error("{0}")]
    Refused(String),
}

impl From<io::Error> for NotMet {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(error) => tls::explain(error),
            None => Self::Absent(error),
        }
    }
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = self.side.encode().to_vec();
        for text in [&self.cluster, &self.from, &self.to] {
            body.push(text.len() as u8);
            body.extend_from_slice(text.as_bytes());
        }
        body.extend_from_slice(&self.constants.encode());
        message(1, &body)
    }

    /// Waits for a caller's hello.
    pub(super) fn receive(stream: &mut Stream, deadline: Instant) -> Result<Self, NotMet> {
        let (kind, body) = receive(stream, deadline)?;
        let hello = || {
            let (side, mut rest) = Side::decode(&body)?;
            let mut text = || {
                let (len, more) = rest.split_first()?;
                let (text, more) = more.split_at_checked(usize::from(*len))?;
                rest = more;
                String::from_utf8(text.to_vec()).ok()
            };
            let (cluster, from, to) = (text()?, text()?, text()?);
            let (constants, _) = Constants::decode(rest)?;
            (kind == 1 && is_name(&from)).then_some(Self { cluster, constants, from, to, side })
        };
        hello().ok_or_else(|| NotMet::Refused("its first message is not a hello".into()))
    }
}

impl Side {
    fn encode(self) -> [u8; 17] {
        let mut bytes = [u8::from(self.card); 17];
        bytes[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.meeting.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (incarnation, rest) = bytes.split_first_chunk()?;
        let (meeting, rest) = rest.split_first_chunk()?;
        let (card, rest) = rest.split_first().filter(|(card, _)| **card <= 1)?;
        let [incarnation, meeting] = [incarnation, meeting].map(|b| u64::from_le_bytes(*b));
        Some((Self { incarnation, meeting, card: *card == 1 }, rest))
    }
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome(side) => message(2, &side.encode()),
            Self::Later => message(3, &[]),
            Self::Refused(why) => message(4, &why.as_bytes()[..why.floor_char_boundary(BODY_MAX)]),
        }
    }

    /// Waits for the answer to a hello.
    pub(super) fn receive(stream: &mut Stream, deadline: Instant) -> Result<Side, NotMet> {
        let (kind, body) = receive(stream, deadline)?;
        match kind {
            2 => match Side::decode(&body) {
                Some((side, [])) => Ok(side),
                _ => Err(NotMet::Refused("its welcome is malformed".into())),
            },
            3 => Err(NotMet::Later),
            4 => {
                let why = String::from_utf8_lossy(&body);
                let plain = why.chars().map(|c| if c.is_control() { ' ' } else { c });
                Err(NotMet::Refused(format!("it says: {}", plain.collect::<String>())))
            }
            _ => Err(NotMet::Refused("its answer is malformed".into())),
        }
    }
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&kind.to_le_bytes());
    bytes.extend_from_slice(&(body.len() as u16).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Waits for a message, and takes no byte of what follows it.
fn receive(stream: &mut Stream, deadline: Instant) -> Result<(u16, Vec<u8>), NotMet> {
    let mut magic = [0; 8];
    // The first byte identifies a side that speaks another protocol. It may be all that the side sends.
    stream.receive_by(&mut magic[..1], deadline)?;
    if matches!(magic[0], 0x15 | 0x16) {
        return Err(NotMet::Refused("it speaks TLS, and here the network is plain".into()));
    }
    stream.receive_by(&mut magic[1..], deadline)?;
    if magic != *MAGIC {
        return Err(NotMet::Refused("it does not speak Skein's protocol".into()));
    }
    let mut head = [0; HEAD - MAGIC.len()];
    stream.receive_by(&mut head, deadline)?;
    let version = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let kind = u16::from_le_bytes([head[4], head[5]]);
    let len = usize::from(u16::from_le_bytes([head[6], head[7]]));
    if version != VERSION {
        let what = format!(
            "it speaks version {version} of Skein's protocol, and here version {VERSION} is spoken"
        );
        return Err(NotMet::Refused(what));
    }
    if len > BODY_MAX {
        return Err(NotMet::Refused("its first message is too long".into()));
    }
    let mut body = vec![0; len];
    stream.receive_by(&mut body, deadline)?;
    Ok((kind, body))
}
