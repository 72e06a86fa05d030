//! Torn or damaged, and whom a damage harms.

use crate::harness::{Appended, Log, OWNER, SMALL, VALUE};
use proptest::prelude::*;
use skein_wal::files::{FileError, FileName, Files, SegmentName, sync_everything};
use skein_wal::format::{BLOCK, BlockHeader, BlockKind, Records};
use skein_wal::{AppendError, Group, Lsn, Options, Recovery, Verdict};

const G: [Group; 4] = [Group(0), Group(1), Group(2), Group(3)];

/// A block as it lies in a file.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) file: FileName,
    pub(crate) offset: u64,
    pub(crate) header: BlockHeader,
}

/// All sound blocks, headers' second copies left out.
pub(crate) fn blocks(log: &Log) -> Vec<Placed> {
    let mut found = Vec::new();
    for file in log.segments() {
        let FileName::Segment(SegmentName { sequence, salt, .. }) = file else { unreachable!() };
        let bytes = log.medium.bytes(file);
        let mut offset = 0;
        while offset < bytes.len() {
            let Ok((header, _)) = BlockHeader::verify(&bytes[offset..], salt) else {
                offset += BLOCK;
                continue;
            };
            assert_eq!(header.sequence, sequence);
            if header.kind != BlockKind::Header || offset == 0 {
                found.push(Placed { file, offset: offset as u64, header });
            }
            offset += header.length as usize;
        }
    }
    found
}

/// A log with one block for each of these groups' records, in this order.
pub(crate) fn one_block_each(groups: &[Group]) -> Log {
    let mut log = Log::new(1, SMALL);
    for (i, &group) in groups.iter().enumerate() {
        log.append(group, VALUE, &[i as u8; 100]).unwrap();
        log.turn();
    }
    log
}

pub(crate) fn records(log: &Log) -> Vec<Placed> {
    blocks(log).into_iter().filter(|block| block.header.kind == BlockKind::Records).collect()
}

pub(crate) fn rot(log: &Log, block: &Placed, byte: u64) {
    log.medium.flip(block.file, (block.offset + byte) * 8);
}

#[test]
fn the_last_block_is_torn_unless_a_seal_says_that_it_was_durable() {
    let mut log = one_block_each(&[G[0], G[1], G[1]]);
    let last = records(&log).pop().unwrap();
    rot(&log, &last, 100);
    // The test, not the disk, broke it: what it held is not owed any more.
    log.durable = last.header.lsn;
    assert_eq!(log.restart().unwrap().damaged, []);
    assert_eq!(log.owed[&G[1]].records.len(), 1);

    let mut log = one_block_each(&[G[0], G[1], G[1]]);
    assert!(log.writer.seal());
    log.turn();
    assert!(!log.writer.seal(), "once is enough");
    let last = records(&log).pop().unwrap();
    rot(&log, &last, 100);
    sync_everything(&log.medium).unwrap();
    let found = Recovery::read(&log.medium, OWNER, &[]).unwrap();
    let [damage] = found.damages() else { panic!("{:?}", found.damages()) };
    assert_eq!((damage.sequence, damage.offset), (last.header.sequence, last.offset));
    // The seal does not say whose it was: both may have had more.
    assert_eq!(log.restart().unwrap().damaged, [G[0], G[1]]);
}

#[test]
fn a_damage_harms_the_groups_whose_chain_passes_through_it() {
    #[rustfmt::skip]
    let cases: [(&[Group], usize, &[Group], &str); 6] = [
        // blocks                                damaged  harms          because
        (&[G[0], G[1], G[0], G[1], G[0]],        1,       &[G[1]],       "only g1 was there"),
        (&[G[0], G[1], G[0], G[1], G[0]],        2,       &[G[0]],       "only g0 was there"),
        (&[G[0], G[1], G[0], G[0], G[0]],        2,       &[G[0], G[1]], "g1 has nothing later, so it may have been"),
        (&[G[0], G[1], G[2], G[0], G[2], G[1]],  2,       &[G[2]],       "the last record shows that g1 lacks nothing"),
        (&[G[0], G[1], G[0], G[1], G[2], G[2]],  3,       &[G[0], G[1]], "g2 begins after it"),
        (&[G[0], G[0], G[1], G[0], G[1], G[0]],  2,       &[G[1]],       "the first record of g1 is lost, and the second says so"),
    ];
    for (groups, damaged, harms, because) in cases {
        for byte in [0, 8, 40, 64, 88, 150, 4000] {
            let mut log = one_block_each(groups);
            let block = records(&log)[damaged].clone();
            rot(&log, &block, byte);
            assert_eq!(log.restart().unwrap().damaged, harms, "{because}, byte {byte}");
            // It is remembered, whatever is appended, until the group begins anew.
            for &group in harms {
                log.append(group, VALUE, b"more");
            }
            log.turn();
            assert_eq!(log.restart().unwrap().damaged, harms, "{because}, after a restart");
            for &group in harms {
                log.begin(group);
                log.append(group, VALUE, b"anew").unwrap();
            }
            log.turn();
            assert_eq!(log.restart().unwrap().damaged, [], "{because}, after a new beginning");
        }
    }
}

#[test]
fn a_later_header_shows_that_an_idle_group_lacks_nothing() {
    let mut log = one_block_each(&[G[1], G[0], G[0], G[0]]);
    assert_eq!(log.restart().unwrap().damaged, []);
    log.append(G[0], VALUE, b"more").unwrap();
    log.turn();
    let block = records(&log)[1].clone();
    rot(&log, &block, 100);
    assert_eq!(log.restart().unwrap().damaged, [G[0]]);
}

#[test]
fn a_group_that_was_hosted_and_left_no_trace_behind_a_damage_is_not_called_whole() {
    let mut log = one_block_each(&[G[0], G[1], G[0]]);
    let block = records(&log)[1].clone();
    rot(&log, &block, 100);
    let hosted = [G[0], G[1], G[3]];
    let found = Recovery::read(&log.medium, OWNER, &hosted).unwrap();
    let harmed = found.groups().iter().filter(|group| group.verdict != Verdict::Whole);
    let harmed: Vec<_> = harmed.map(|group| group.group).collect();
    assert_eq!(harmed, [G[1], G[3]], "nothing is left that knows them");
    // It is not forgotten when the next start crashes before they begin anew.
    log.restart().unwrap();
    assert_eq!(log.restart().unwrap().damaged, [G[1]], "the harness hosts no g3");
}

#[test]
fn a_damage_below_what_a_group_keeps_does_not_harm_it() {
    let mut log = one_block_each(&[G[0], G[1], G[0], G[1]]);
    let block = records(&log)[0].clone();
    let keep = log.owed[&G[0]].records[1].lsn;
    log.keep_from(G[0], keep);
    log.restart().unwrap();
    log.keep_from(G[0], keep);
    // A header has to say so, and another start has to read it.
    for _ in 0..20 {
        log.append(G[1], VALUE, &[9; 3000]).unwrap();
        log.turn();
    }
    assert!(log.writer.sizes().segments > 2, "g1 keeps them all");
    rot(&log, &block, 100);
    assert_eq!(log.restart().unwrap().damaged, []);
}

/// Blocks 11, 12 and 13 are under way, 12 and 13 arrive, and the process ends. Whatever follows, 12
/// and 13 are never read, though a new 11 stands before them.
#[test]
fn nothing_behind_a_cut_is_ever_read() {
    for lost in 0..3_usize {
        let mut log = one_block_each(&[G[0], G[1]]);
        for (i, &group) in G[..3].iter().enumerate() {
            log.append(group, VALUE, b"under way").unwrap();
            let flush = log.writer.next_flush().unwrap();
            if i != lost {
                log.medium.write(flush.file(), flush.offset(), flush.bytes()).unwrap();
            }
            // The writer is not told: the process ends first.
            std::mem::forget(flush);
        }
        log.medium.crash();
        for round in 0..3 {
            let found = log.restart().unwrap();
            assert_eq!(found.damaged, []);
            assert_eq!(
                found.records,
                2 + lost + round,
                "those before the lost one, and newer ones"
            );
            log.append(G[0], VALUE, b"new").unwrap();
            log.turn();
        }
    }
}

/// As above, but 11 arrives after all, when the next start has long found the log's end before it. All
/// three blocks are sound then, and follow each other.
#[test]
fn a_block_that_arrives_after_the_cut_does_not_revive_those_behind_it() {
    let mut log = one_block_each(&[G[0], G[1]]);
    let mut late = None;
    for i in 0..3 {
        log.append(G[i % 2], VALUE, b"under way").unwrap();
        let flush = log.writer.next_flush().unwrap();
        if i > 0 {
            log.medium.write(flush.file(), flush.offset(), flush.bytes()).unwrap();
        }
        late.get_or_insert(flush);
    }
    log.medium.crash();
    assert_eq!(log.restart().unwrap().records, 2);
    let late = late.unwrap();
    log.medium.write(late.file(), late.offset(), late.bytes()).unwrap();
    for _ in 0..2 {
        let found = log.restart().unwrap();
        assert_eq!((found.damaged, found.records), (vec![], 2));
    }
}

/// The last block before a cut rots. What lies behind the cut is no continuation of the log.
#[test]
fn a_damage_before_a_cut_does_not_lead_behind_it() {
    let mut log = one_block_each(&[G[0], G[1]]);
    for (i, group) in [G[0], G[2]].into_iter().enumerate() {
        log.append(group, VALUE, b"under way").unwrap();
        let flush = log.writer.next_flush().unwrap();
        if i > 0 {
            log.medium.write(flush.file(), flush.offset(), flush.bytes()).unwrap();
        }
    }
    log.medium.crash();
    assert_eq!(log.restart().unwrap().records, 2);
    let last = records(&log)[1].clone();
    rot(&log, &last, 100);
    let found = log.restart().unwrap();
    assert_eq!((found.damaged, found.records), (vec![G[1]], 1));
}

/// As above, and what lies behind the cut is a segment with a header of its own.
#[test]
fn a_damage_before_a_cut_does_not_lead_to_an_orphaned_segment() {
    let mut log = Log::new(1, SMALL);
    let mut put = |i: u8, lost: bool| {
        log.append(G[0], VALUE, &[i; 5000]).unwrap();
        while let Some(flush) = log.writer.next_flush() {
            if lost {
                continue; // Under way when the process ends.
            }
            log.medium.write(flush.file(), flush.offset(), flush.bytes()).unwrap();
            log.writer.flushed(flush, Ok(())).unwrap();
        }
    };
    // Six blocks fill a segment. The last is lost; the link behind it and the next segment are not.
    (0..5).for_each(|i| put(i, false));
    put(5, true);
    put(6, false);
    log.medium.crash();
    assert_eq!(log.restart().unwrap().records, 5);
    let last = records(&log)[4].clone();
    rot(&log, &last, 100);
    let found = log.restart().unwrap();
    assert_eq!((found.damaged, found.records), (vec![G[0]], 4));
}

#[test]
fn a_start_without_its_first_header_harms_everybody_until_they_begin_anew() {
    let mut log = one_block_each(&[G[0], G[1]]);
    log.restart().unwrap();
    for group in [G[0], G[1]] {
        log.append(group, VALUE, b"second start").unwrap();
        log.turn();
    }
    let second = last_segment(&log);
    log.medium.overwrite(second, 0, &[0; 2 * BLOCK]);
    // Those of which earlier starts know, and one that the caller hosts.
    let found = Recovery::read(&log.medium, OWNER, &[G[3]]).unwrap();
    let harmed = found.groups().iter().filter(|group| group.verdict != Verdict::Whole);
    assert_eq!(harmed.map(|group| group.group).collect::<Vec<_>>(), [G[0], G[1], G[3]]);
    assert_eq!(log.restart().unwrap().damaged, [G[0], G[1]]);
    assert_eq!(log.restart().unwrap().damaged, [G[0], G[1]]);
    for group in [G[0], G[1]] {
        log.begin(group);
        log.append(group, VALUE, b"anew").unwrap();
    }
    log.turn();
    assert_eq!(log.restart().unwrap().damaged, []);
}

#[test]
fn who_began_anew_after_a_damage_is_not_harmed_by_it() {
    let mut log = one_block_each(&[G[0], G[1]]);
    log.restart().unwrap();
    log.append(G[0], VALUE, b"second start").unwrap();
    log.turn();
    let second = last_segment(&log);
    log.restart().unwrap();
    log.begin(G[0]);
    for group in [G[0], G[1]] {
        log.append(group, VALUE, b"third start").unwrap();
        log.turn();
    }
    log.medium.overwrite(second, 0, &[0; 2 * BLOCK]);
    assert_eq!(log.restart().unwrap().damaged, [G[1]]);
}

/// A value contains what looks like a block at the very place where it will lie. When the block around
/// it tears, the image must not be read, nor testify that the torn block was durable.
#[test]
fn an_image_of_a_block_inside_a_value_does_not_pass() {
    for salt in [0, 1, u64::MAX] {
        let mut log = one_block_each(&[G[0], G[1]]);
        let last = records(&log).pop().unwrap();
        let FileName::Segment(name) = last.file else { unreachable!() };
        // The image lies 4096 bytes into the block that comes next.
        let place = last.header.end().0 + BLOCK as u64;
        let mut image = log.medium.bytes(last.file)[last.offset as usize..][..BLOCK].to_vec();
        image[40..48].copy_from_slice(&place.to_le_bytes());
        image[56..64].copy_from_slice(&place.to_le_bytes());
        assert_ne!(name.salt, salt);
        let checksum = xxhash_rust::xxh3::xxh3_64_with_seed(&image[8..], salt);
        image[..8].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(BlockHeader::verify(&image, salt).unwrap().0.lsn, Lsn(place));
        let mut value = vec![0; BLOCK - BlockHeader::BYTES - 16];
        value.extend_from_slice(&image);
        value.resize(3 * BLOCK, 0);
        log.append(G[0], VALUE, &value).unwrap();
        let flush = log.writer.next_flush().unwrap();
        assert_eq!(&flush.bytes()[BLOCK..2 * BLOCK], &image, "it lies where it says");
        // All of it arrives but the first sector.
        let mut torn = flush.bytes().to_vec();
        torn[..512].fill(0);
        log.medium.write(flush.file(), flush.offset(), &torn).unwrap();
        let found = log.restart().unwrap();
        assert_eq!((found.damaged, found.records), (vec![], 2), "salt {salt}");
    }
}

#[test]
fn a_disk_that_lied_about_a_write_is_found_out_by_the_next_block() {
    let mut log = one_block_each(&[G[0], G[1]]);
    log.append(G[0], VALUE, b"a lie").unwrap();
    log.medium.faults(|faults| faults.lies = true);
    log.flush();
    log.finish(0);
    log.medium.faults(|faults| faults.lies = false);
    for group in [G[1], G[0]] {
        log.append(group, VALUE, b"after it").unwrap();
        log.turn();
    }
    // The lie is lost for certain: whatever the power leaves is not what was written.
    log.medium.power_loss();
    let lie = log.owed[&G[0]].records[1].clone();
    let block = Lsn(lie.lsn.0 / BLOCK as u64 * BLOCK as u64);
    if let Some(kept) = records(&log).iter().find(|placed| placed.header.lsn == block) {
        rot(&log, kept, 0);
    }
    assert_eq!(log.restart().unwrap().damaged, [G[0]]);
}

#[test]
fn a_misdirected_write_is_missed_where_it_belongs_and_harms_what_it_hit() {
    let mut log = one_block_each(&[G[0], G[1], G[2], G[3]]);
    let victim = records(&log)[1].clone();
    log.append(G[2], VALUE, b"astray").unwrap();
    log.medium.faults(|faults| faults.misdirect_to = Some(victim.offset));
    log.turn();
    for group in [G[0], G[1], G[2], G[3]] {
        log.append(group, VALUE, b"after it").unwrap();
        log.turn();
    }
    assert_eq!(log.restart().unwrap().damaged, [G[1], G[2]]);
}

/// A log of some segments; and the files of its first start that hold blocks.
fn long() -> (Log, Vec<FileName>) {
    let mut log = Log::new(1, SMALL);
    for i in 0..40 {
        log.append(G[i % 2], VALUE, &[i as u8; 5000]).unwrap();
        log.turn();
    }
    assert!(log.writer.sizes().segments > 3);
    let mut files = log.segments();
    files.pop(); // The successor that is prepared.
    (log, files)
}

#[test]
fn one_copy_of_a_header_is_enough() {
    let (_, files) = long();
    for index in 0..files.len() {
        for copy in [0, 1] {
            let (mut log, files) = long();
            log.medium.flip(files[index], (copy * BLOCK as u64 + 100) * 8);
            assert_eq!(log.restart().unwrap().damaged, [], "segment {index}, copy {copy}");
        }
    }
}

#[test]
fn without_both_copies_of_its_header_a_segment_is_damaged() {
    let (_, files) = long();
    for index in 0..files.len() {
        let (mut log, files) = long();
        log.medium.overwrite(files[index], 0, &[0; 2 * BLOCK]);
        let damaged = log.restart().unwrap().damaged;
        if index == 0 {
            assert_eq!(damaged, [G[0], G[1]], "nobody knows what it said");
            for group in damaged {
                log.begin(group);
                log.append(group, VALUE, b"anew").unwrap();
            }
            log.turn();
            assert_eq!(log.restart().unwrap().damaged, [], "what they lost, they do not need");
        } else {
            assert_eq!(
                damaged,
                [],
                "the link before it and the chains show that no record is lost"
            );
        }
    }
}

#[test]
fn a_segment_that_is_gone_is_missed() {
    let (_, files) = long();
    for index in 0..files.len() {
        let (mut log, files) = long();
        log.medium.remove(files[index]).unwrap();
        log.medium.sync_directory().unwrap();
        assert_eq!(log.restart().unwrap().damaged, [G[0], G[1]], "segment {index}");
        assert_eq!(log.restart().unwrap().damaged, [G[0], G[1]], "segment {index}, again");
    }
}

/// Old segments that nobody needs go one after the other. One that goes before an older one would be
/// missed: the cut that the next start names lies in it.
#[test]
fn old_segments_go_in_their_order() {
    for tasks in 1..8 {
        let mut log = Log::new(1, SMALL);
        for _ in 0..5 {
            log.append(G[0], VALUE, &[1; 100]).unwrap();
            log.turn();
            log.restart().unwrap();
        }
        log.keep_from(G[0], log.durable);
        log.reopen().unwrap();
        log.keep_from(G[0], log.durable);
        log.task();
        while log.flush() {
            log.finish(0);
        }
        (0..tasks).for_each(|_| _ = log.task());
        let found = Recovery::read(&log.medium, OWNER, &G).unwrap();
        assert_eq!(found.damages(), [], "after {tasks} tasks");
    }
}

/// The only header is damaged, and nobody needs what was before it. It must not look like a new log:
/// the promise was told.
#[test]
fn a_log_without_its_last_header_is_not_a_new_one() {
    let mut log = Log::new(1, Options { spare_max: 0, ..SMALL });
    log.promise(G[0]);
    log.turn();
    for _ in 0..4 {
        log.reopen().unwrap();
        log.keep_from(G[0], log.durable);
        log.turn();
    }
    let last = last_segment(&log);
    log.medium.overwrite(last, 0, &[0; 2 * BLOCK]);
    assert_eq!(log.owed[&G[0]].promised, 1);
    // The harness compares promises.
    assert_eq!(log.restart().unwrap().damaged, []);
}

pub(crate) fn last_segment(log: &Log) -> FileName {
    blocks(log).last().expect("a header").file
}

/// Changes a byte of a block that holds nothing, or a value, and makes its checksum match.
pub(crate) fn exchange(log: &Log, block: &Placed) {
    let FileName::Segment(name) = block.file else { unreachable!() };
    let mut forged = log.medium.bytes(block.file)[block.offset as usize..][..BLOCK].to_vec();
    forged[150] ^= 1;
    let checksum = xxhash_rust::xxh3::xxh3_64_with_seed(&forged[8..], name.salt);
    forged[..8].copy_from_slice(&checksum.to_le_bytes());
    log.medium.overwrite(block.file, block.offset, &forged);
}

fn damages(log: &Log) -> Vec<(u64, u64)> {
    let found = Recovery::read(&log.medium, OWNER, &[]).unwrap();
    found.damages().iter().map(|damage| (damage.sequence, damage.offset)).collect()
}

/// A sound block in the place of another one: its own checksum matches, and the next block knows better.
#[test]
fn a_block_that_was_exchanged_is_noticed_by_the_next_one() {
    let log = one_block_each(&[G[0], G[1], G[0], G[1], G[0]]);
    let block = records(&log)[1].clone();
    exchange(&log, &block);
    assert_eq!(damages(&log), [(block.header.sequence, block.offset + BLOCK as u64)]);

    let (log, _) = long();
    let is_link = |block: &Placed| matches!(block.header.kind, BlockKind::Link { .. });
    let link = blocks(&log).into_iter().find(is_link).unwrap();
    exchange(&log, &link);
    assert_eq!(damages(&log), [(link.header.sequence + 1, 0)], "the next header knows better");
}

/// Also files whose making was cut short are of another length.
#[test]
fn segments_of_another_length_are_read_and_not_used_again() {
    let (mut log, _) = long();
    log.options.segment_bytes *= 2;
    assert_eq!(log.restart().unwrap().damaged, []);
    for i in 0..100 {
        log.append(G[i % 2], VALUE, &[3; 5000]).unwrap();
        // Headers first: then old segments are there when the next one is to be made.
        while log.flush() {
            log.finish(0);
        }
        log.turn();
        for group in [G[0], G[1]] {
            log.keep_from(group, log.durable);
        }
    }
    assert!(log.writer.sizes().recycled > 4);
    let lengths = log.medium.list().unwrap().into_iter().map(|(_, length)| length);
    assert_eq!(lengths.min(), Some(log.options.segment_bytes), "old ones are removed");
    assert_eq!(log.restart().unwrap().damaged, []);
}

#[test]
fn what_is_not_used_of_a_block_is_zero() {
    let mut log = Log::new(1, SMALL);
    for i in 0..30 {
        // Long ones leave their bytes in the buffers of short ones.
        log.append(G[0], VALUE, &vec![0xff; [6000, 3, 11][i % 3]]).unwrap();
        log.append(G[0], VALUE, &[0xff; 5]).unwrap();
        log.turn();
    }
    for placed in records(&log) {
        let block = &log.medium.bytes(placed.file)[placed.offset as usize..];
        let block = &block[..placed.header.length as usize];
        assert!(block[placed.header.used as usize..].iter().all(|&byte| byte == 0));
        for record in Records::of(&placed.header, block) {
            let end = (record.lsn.0 - placed.header.lsn.0) as usize + 16 + record.bytes.len();
            assert!(block[end..end.next_multiple_of(8)].iter().all(|&byte| byte == 0));
        }
    }
}

#[test]
fn what_a_group_logged_before_it_began_anew_holds_no_segment() {
    let mut log = Log::new(1, SMALL);
    for i in 0..60 {
        if i == 30 {
            log.begin(G[0]);
        }
        log.append(G[0], VALUE, &[1; 5000]).unwrap();
        log.turn();
    }
    assert!(log.writer.sizes().recycled > 2, "{:?}", log.writer.sizes());
    assert_eq!(log.restart().unwrap().damaged, []);
}

#[test]
fn old_blocks_in_a_recycled_file_are_not_read() {
    let mut log = Log::new(1, SMALL);
    let mut recycled = 0;
    for i in 0..200 {
        log.append(G[i % 2], VALUE, &[i as u8; 3000]).unwrap();
        log.turn();
        for group in [G[0], G[1]] {
            log.keep_from(group, log.durable);
        }
        if log.writer.sizes().recycled > recycled && i % 7 == 0 {
            recycled = log.writer.sizes().recycled;
            assert_eq!(log.restart().unwrap().damaged, []);
            recycled = recycled.min(log.writer.sizes().recycled);
        }
    }
    assert!(log.segments().len() < 8, "{} files", log.segments().len());
}

#[test]
fn a_log_that_grows_and_is_cut_again_and_again_makes_no_more_files() {
    let mut log = Log::new(1, SMALL);
    let mut counts = Vec::new();
    for _ in 0..6 {
        for _ in 0..200 {
            log.append(G[0], VALUE, &[1; 5000]).unwrap();
            log.turn();
        }
        log.keep_from(G[0], log.durable);
        while log.writer.sizes().segments > 4 {
            log.append(G[0], VALUE, &[1; 5000]).unwrap();
            log.turn();
        }
        counts.push(log.medium.list().unwrap().len());
    }
    assert!(counts[0] > 10, "{counts:?}: what was written to is kept");
    assert!(counts[1..].windows(2).all(|pair| pair[0] == pair[1]), "{counts:?}");
    let needed = log.writer.sizes().segments;
    assert_eq!(log.segments().len(), needed + 1, "others are read by no start, and do it no harm");
    assert_eq!(log.restart().unwrap().damaged, []);
    let more = log.medium.list().unwrap().len().checked_sub(counts[5]);
    assert!(more.is_some_and(|more| more <= 2), "they are kept over a start");
    log.options.files_max = 8;
    assert_eq!(log.restart().unwrap().damaged, []);
    let files = log.medium.list().unwrap().len();
    assert!(files <= 10, "there is less room now: {files} files");
}

#[test]
fn a_full_disk_is_waited_for_and_a_failed_one_is_not() {
    let mut log = Log::new(1, SMALL);
    let used = log.medium.list().unwrap().iter().map(|(_, length)| length).sum();
    log.medium.faults(|faults| faults.capacity = Some(used));
    let mut took = 0;
    while log.append(G[0], VALUE, &[1; 3000]).is_some() {
        log.turn();
        took += 1;
    }
    assert!(took > 10, "what was prepared is used");
    assert_eq!(log.writer.append(G[0], VALUE, &[&[1; 3000]]), Err(AppendError::Busy));
    log.medium.faults(|faults| faults.capacity = None);
    log.turn();
    assert!(log.append(G[0], VALUE, &[1; 3000]).is_some(), "there is room again");
    log.turn();

    log.append(G[0], VALUE, b"doomed").unwrap();
    let at = log.medium.operations() + 1;
    log.medium.faults(|faults| faults.error_at = Some(at));
    let flush = log.writer.next_flush().unwrap();
    let result = log.medium.begin_write(flush.file(), flush.offset(), flush.bytes());
    let error = log.writer.flushed(flush, Err(result.unwrap_err())).unwrap_err();
    assert!(matches!(error, FileError::Io { .. }));
    assert_eq!(log.writer.append(G[0], VALUE, &[]), Err(AppendError::Failed));
    assert!(log.writer.next_flush().is_none() && log.writer.next_task().is_none());
    assert_eq!(log.restart().unwrap().damaged, []);
}

/// What lies in the block with this LSN, of a group that is still wanted.
fn in_block(records: &[Appended], header: &BlockHeader) -> bool {
    records.iter().any(|record| record.lsn > header.lsn && record.lsn < header.end())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// One sector of a sealed log rots. Nothing that was durable is missed silently, and only groups
    /// that had something there, or nothing later, are harmed.
    #[test]
    fn rot_is_never_silent_and_harms_nobody_else(
        sizes in prop::collection::vec((0..4_u16, 0..7000_usize), 1..60),
        restart_after in 0..60_usize,
        at in any::<prop::sample::Index>(),
        byte in any::<prop::sample::Index>(),
    ) {
        let mut log = Log::new(3, SMALL);
        for (i, &(group, bytes)) in sizes.iter().enumerate() {
            log.append(Group(group), VALUE, &vec![i as u8; bytes]).unwrap();
            if i % 3 == 0 {
                log.turn();
            }
            if i == restart_after {
                log.turn();
                log.restart().unwrap();
            }
        }
        log.turn();
        log.writer.seal();
        log.turn();
        let blocks = blocks(&log);
        let hit = at.get(&blocks).clone();
        rot(&log, &hit, byte.index(hit.header.length as usize) as u64);
        let owed = log.owed.clone();
        let found = log.restart().unwrap();
        for group in found.damaged {
            let records = &owed[&group].records;
            let later = records.last().is_some_and(|record| record.lsn > hit.header.end());
            prop_assert!(in_block(records, &hit.header) || !later, "{group} was not there");
        }
    }
}
