//! Messages between the two sides of a connection, sent over the control channel.
//!
//! ```text
//!  offer     1 │ gid: 16 bytes │ lid: u16 │ mtu: u8 │ reads: u8
//!              │ out: u32 │ into: u32 │ first: u32 │ bell address: u64 │ bell key: u32
//!  ready     2
//!  again     3 │ beginning: u32 │ first: u32 │ grant: u32
//!  welcome   4 │ beginning: u32 │ open: u8
//! ```
//!
//! Each side offers a queue pair for each direction: `out` carries its own requests, with packets numbered from `first`
//! on, and `into` serves the other side's. A side whose `into` is connected sends *ready*. A side whose request was
//! refused begins *again* with other numbers, and names the grant of that request; the *welcome* says whether that
//! grant is still open.

/// A note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    Offer(Offer),
    Ready,
    Again { beginning: u32, first: u32, grant: u32 },
    Welcome { beginning: u32, open: bool },
}

/// One side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    pub(super) mtu: u8,
    pub(super) reads: u8,
    pub(super) out: u32,
    pub(super) into: u32,
    pub(super) first: u32,
    /// Address and key of the word in which the other side announces that it sleeps.
    pub(super) bell: (u64, u32),
}

impl Note {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48);
        match self {
            Self::Offer(Offer { gid, lid, mtu, reads, out, into, first, bell }) => {
                bytes.push(1);
                bytes.extend(gid);
                bytes.extend(lid.to_le_bytes());
                bytes.extend([*mtu, *reads]);
                for number in [out, into, first] {
                    bytes.extend(number.to_le_bytes());
                }
                bytes.extend(bell.0.to_le_bytes());
                bytes.extend(bell.1.to_le_bytes());
            }
            Self::Ready => bytes.push(2),
            Self::Again { beginning, first, grant } => {
                bytes.push(3);
                for number in [beginning, first, grant] {
                    bytes.extend(number.to_le_bytes());
                }
            }
            Self::Welcome { beginning, open } => {
                bytes.push(4);
                bytes.extend(beginning.to_le_bytes());
                bytes.push(u8::from(*open));
            }
        }
        bytes
    }

    /// `None` if no process of this version would send the bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, mut rest) = bytes.split_first()?;
        let note = match kind {
            1 => Self::Offer(Offer {
                gid: take(&mut rest)?,
                lid: u16::from_le_bytes(take(&mut rest)?),
                mtu: take::<1>(&mut rest).map(|[mtu]| mtu)?,
                reads: take::<1>(&mut rest).map(|[reads]| reads)?,
                out: number(&mut rest)?,
                into: number(&mut rest)?,
                first: number(&mut rest)?,
                bell: (u64::from_le_bytes(take(&mut rest)?), number(&mut rest)?),
            }),
            2 => Self::Ready,
            3 => Self::Again {
                beginning: number(&mut rest)?,
                first: number(&mut rest)?,
                grant: number(&mut rest)?,
            },
            4 => Self::Welcome {
                beginning: number(&mut rest)?,
                open: match take(&mut rest)? {
                    [0] => false,
                    [1] => true,
                    _ => return None,
                },
            },
            _ => return None,
        };
        let sound = match note {
            Self::Offer(Offer { mtu, reads, .. }) => (1..=5).contains(&mtu) && reads > 0,
            _ => true,
        };
        (sound && rest.is_empty()).then_some(note)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, more) = rest.split_first_chunk()?;
    *rest = more;
    Some(*first)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: Offer = Offer {
        gid: [7; 16],
        lid: 3,
        mtu: 5,
        reads: 16,
        out: 17,
        into: 18,
        first: 0xab_cdef,
        bell: (0x7f00_0000_0008, 99),
    };

    #[test]
    fn what_is_said_is_heard_and_nothing_else() {
        let notes = [
            Note::Offer(OFFER),
            Note::Ready,
            Note::Again { beginning: 1, first: 2, grant: 3 },
            Note::Welcome { beginning: 1, open: true },
            Note::Welcome { beginning: 1, open: false },
        ];
        for note in notes {
            let bytes = note.encode();
            assert_eq!(Note::decode(&bytes), Some(note));
            let longer = [bytes.as_slice(), &[0]].concat();
            assert_eq!(Note::decode(&longer), None, "longer than {note:?}");
            for len in 0..bytes.len() {
                assert_eq!(Note::decode(&bytes[..len]), None, "{len} bytes of {note:?}");
            }
        }
        #[rustfmt::skip]
        let nonsense = [
            (vec![0],                                                  "of no kind"),
            (vec![4, 0, 0, 0, 0, 2],                                   "neither open nor not"),
            (Note::Offer(Offer { mtu: 0, ..OFFER }).encode(),          "of no MTU"),
            (Note::Offer(Offer { mtu: 6, ..OFFER }).encode(),          "of an MTU that is none"),
            (Note::Offer(Offer { reads: 0, ..OFFER }).encode(),        "without reads"),
        ];
        for (bytes, what) in nonsense {
            assert_eq!(Note::decode(&bytes), None, "{what}");
        }
    }
}
