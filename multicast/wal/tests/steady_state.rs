//! The writer allocates nothing between two segments.

use skein_wal::files::{Medium, perform};
use skein_wal::{Flush, Group, Options, Owner, Recovery};

#[test]
fn records_and_flushes_allocate_nothing() {
    let medium = Medium::new(1);
    let options = Options { segment_bytes: 16 << 20, first_bytes: 16 << 20, ..Options::default() };
    let owner = Owner { cluster: [1; 16], node: 1 };
    let mut writer = Recovery::read(&medium, owner, &[]).unwrap().writer(options, 1);
    while let Some(task) = writer.next_task() {
        let result = perform(&medium, &task);
        writer.performed(task, result).unwrap();
    }
    let mut flushes: Vec<Flush> = Vec::with_capacity(options.in_flight_max);
    let mut turn = |records: usize| {
        for i in 0..records {
            let group = Group((i % 5) as u16);
            writer.append(group, 1, &[&[1; 50], &[2; 300]]).unwrap();
            writer.table(group, &[3; 40]).unwrap();
            if i % 20 == 0 {
                flushes.extend(writer.next_flush());
            }
        }
        // The last one first.
        while let Some(flush) = flushes.pop() {
            writer.flushed(flush, Ok(())).unwrap();
        }
    };
    (0..10).for_each(|_| turn(100));
    let info = allocation_counter::measure(|| (0..50).for_each(|_| turn(100)));
    assert_eq!(info.count_total, 0);
}
