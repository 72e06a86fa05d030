//! The wire format of a link after the handshake: frames, little-endian, of bounded length.
//!
//! ```text
//!  0 len: u32, of the body │ kind: u8 │ asks: u8 │ 0: u16 │ body
//!
//!  write    region: u32 │ 0: u32 │ grant: u64 │ at: u64 │ bytes
//!  read     region: u32 │ len: u32 │ grant: u64 │ at: u64
//!  done     number: u64                       that request, and all before it without an answer of their own, are done
//!  denied   number: u64                       that request has changed nothing
//!  fetched  number: u64 │ bytes               the bytes of that read
//!  mail     bytes
//!  taken    messages: u64                      total number of messages that were read
//!  note     bytes                             for the fabric whose control channel this is
//! ```
//!
//! *Requests* are writes and reads. Both sides number them, from 1 on each link; the numbers are not sent. The writer
//! requests an answer to a write by `asks`, and one answer serves a batch. A denial is always reported.

use crate::MAIL_MAX;

/// Bytes before the body.
pub(super) const HEADER: usize = 8;
/// Bytes of a write before the written ones.
pub(super) const WRITE_HEAD: usize = 24;
/// Most bytes of one write or read. Longer ones are sent in several, so that none delays the link for long, and no
/// more than this is ever assembled.
pub(super) const CHUNK_MAX: usize = 64 << 10;
/// In bytes.
const BODY_MAX: usize = CHUNK_MAX + WRITE_HEAD;
/// In bytes.
pub(super) const FRAME_MAX: usize = HEADER + BODY_MAX;

const _: () = assert!(MAIL_MAX <= BODY_MAX);

/// A place in a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionOffset {
    pub(super) region: u32,
    pub(super) grant: u64,
    pub(super) at: u64,
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame<'a> {
    Write { place: RegionOffset, asks: bool, bytes: &'a [u8] },
    Read { place: RegionOffset, len: u32 },
    Done { number: u64 },
    Denied { number: u64 },
    Fetched { number: u64, bytes: &'a [u8] },
    Mail { bytes: &'a [u8] },
    Taken { messages: u64 },
    Note { bytes: &'a [u8] },
}

/// Bytes that no process of this version would send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonsense(pub(super) &'static str);

impl<'a> Frame<'a> {
    /// Appends the frame.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, kind: u8, asks: bool, len: usize| {
            debug_assert!(len <= BODY_MAX);
            out.extend_from_slice(&(len as u32).to_le_bytes());
            out.extend_from_slice(&[kind, u8::from(asks), 0, 0]);
        };
        let place = |out: &mut Vec<u8>, place: &RegionOffset, second: u32| {
            out.extend_from_slice(&place.region.to_le_bytes());
            out.extend_from_slice(&second.to_le_bytes());
            out.extend_from_slice(&place.grant.to_le_bytes());
            out.extend_from_slice(&place.at.to_le_bytes());
        };
        match self {
            Self::Write { place: to, asks, bytes } => {
                head(out, 1, *asks, WRITE_HEAD + bytes.len());
                place(out, to, 0);
                out.extend_from_slice(bytes);
            }
            Self::Read { place: from, len } => {
                head(out, 2, true, WRITE_HEAD);
                place(out, from, *len);
            }
            Self::Done { number } => {
                head(out, 3, false, 8);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Self::Denied { number } => {
                head(out, 4, false, 8);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Self::Fetched { number, bytes } => {
                head(out, 5, false, 8 + bytes.len());
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Mail { bytes } => {
                head(out, 6, false, bytes.len());
                out.extend_from_slice(bytes);
            }
            Self::Taken { messages } => {
                head(out, 7, false, 8);
                out.extend_from_slice(&messages.to_le_bytes());
            }
            Self::Note { bytes } => {
                head(out, 8, false, bytes.len());
                out.extend_from_slice(bytes);
            }
        }
    }

    /// Appends a write of `len` bytes, still zero, and returns their offset.
    pub(super) fn begin_write(
        out: &mut Vec<u8>,
        place: RegionOffset,
        asks: bool,
        len: usize,
    ) -> usize {
        Self::Write { place, asks, bytes: &[] }.encode(out);
        Self::lengthen(out, WRITE_HEAD, len)
    }

    /// Appends the answer to a read of `len` bytes, still zero, and returns their offset.
    pub(super) fn begin_fetched(out: &mut Vec<u8>, number: u64, len: usize) -> usize {
        Self::Fetched { number, bytes: &[] }.encode(out);
        Self::lengthen(out, 8, len)
    }

    /// Makes the last frame of `out`, whose body is `body` bytes, `len` bytes longer.
    fn lengthen(out: &mut Vec<u8>, body: usize, len: usize) -> usize {
        let start = out.len();
        let whole = body + len;
        debug_assert!(whole <= BODY_MAX);
        out[start - body - HEADER..][..4].copy_from_slice(&(whole as u32).to_le_bytes());
        out.resize(start + len, 0);
        start
    }

    /// The first frame in `bytes` and its length, if it is whole.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Nonsense> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if len > BODY_MAX {
            return Err(Nonsense("a frame is too long"));
        }
        let asks = match head[5..] {
            [0, 0, 0] => false,
            [1, 0, 0] => true,
            _ => return Err(Nonsense("a frame's header is malformed")),
        };
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let frame = match head[4] {
            1 => {
                let (place, _, bytes) = place(body)?;
                Self::Write { place, asks, bytes }
            }
            2 => match place(body)? {
                (place, len, []) if len as usize <= CHUNK_MAX => Self::Read { place, len },
                _ => return Err(Nonsense("a read is too long")),
            },
            3 => Self::Done { number: number(body)? },
            4 => Self::Denied { number: number(body)? },
            5 => {
                let (head, bytes) = body.split_at_checked(8).ok_or(SHORT)?;
                Self::Fetched { number: number(head)?, bytes }
            }
            6 if len <= MAIL_MAX => Self::Mail { bytes: body },
            7 => Self::Taken { messages: number(body)? },
            8 if len <= MAIL_MAX => Self::Note { bytes: body },
            _ => return Err(Nonsense("a frame's kind is unknown")),
        };
        Ok(Some((frame, HEADER + len)))
    }
}

const SHORT: Nonsense = Nonsense("a frame has the wrong length for its kind");

fn number(body: &[u8]) -> Result<u64, Nonsense> {
    Ok(u64::from_le_bytes(body.try_into().map_err(|_| SHORT)?))
}

fn place(body: &[u8]) -> Result<(RegionOffset, u32, &[u8]), Nonsense> {
    let (head, bytes) = body.split_first_chunk::<WRITE_HEAD>().ok_or(SHORT)?;
    let half = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
    Ok((RegionOffset { region: half(0), grant: word(8), at: word(16) }, half(4), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: RegionOffset = RegionOffset { region: 7, grant: u64::MAX - 1, at: 1 << 40 };

    #[test]
    fn frames_come_back_as_they_were() {
        let (long, message) = (vec![3; CHUNK_MAX], vec![1; MAIL_MAX]);
        let frames = [
            Frame::Write { place: PLACE, asks: true, bytes: b"some bytes" },
            Frame::Write { place: PLACE, asks: false, bytes: &long },
            Frame::Read { place: PLACE, len: 100 },
            Frame::Done { number: 1 << 50 },
            Frame::Denied { number: 9 },
            Frame::Fetched { number: 10, bytes: b"" },
            Frame::Mail { bytes: &message },
            Frame::Note { bytes: b"of queue pairs" },
            Frame::Taken { messages: 3 },
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.encode(&mut bytes);
        }
        let start = Frame::begin_fetched(&mut bytes, 11, 3);
        bytes[start..].copy_from_slice(b"abc");
        let start = Frame::begin_write(&mut bytes, PLACE, true, 2);
        bytes[start..].copy_from_slice(b"de");
        let frames = frames.into_iter().chain([
            Frame::Fetched { number: 11, bytes: b"abc" },
            Frame::Write { place: PLACE, asks: true, bytes: b"de" },
        ]);
        let mut rest = bytes.as_slice();
        for frame in frames {
            let (found, len) = Frame::decode(rest).unwrap().unwrap();
            assert_eq!(found, frame);
            assert!(len <= FRAME_MAX);
            // No part of a frame is taken for the whole.
            for cut in [0, 1, HEADER - 1, HEADER, len - 1] {
                assert_eq!(Frame::decode(&rest[..cut.min(len - 1)]), Ok(None), "{frame:?}");
            }
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn what_no_process_sends_is_nonsense() {
        let frame = |kind: u8, body: &[u8]| {
            let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
            bytes.extend([kind, 0, 0, 0]);
            bytes.extend(body);
            bytes
        };
        let mut long = frame(1, &[]);
        long[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut odd = frame(3, &[0; 8]);
        odd[5] = 2;
        let mut endless = [0; WRITE_HEAD];
        endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        #[rustfmt::skip]
        let cases = [
            (frame(0, &[]),               "no kind is zero"),
            (frame(9, &[]),               "nor is any that high"),
            (long,                        "nobody sends that much at once"),
            (odd,                         "a flag is 0 or 1"),
            (frame(1, &[0; 23]),          "a write says where to"),
            (frame(2, &[0; 25]),          "a read carries nothing"),
            (frame(2, &endless),          "nor does one frame carry that much back"),
            (frame(3, &[0; 7]),           "a number has eight bytes"),
            (frame(5, &[0; 7]),           "there too"),
            (frame(6, &vec![0; MAIL_MAX + 1]), "mail is short"),
        ];
        for (bytes, because) in cases {
            assert!(Frame::decode(&bytes).is_err(), "{because}");
        }
    }
}
