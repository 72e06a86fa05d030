//! Safe wrappers of libibverbs, with owners instead of pointers. Only this module calls it.

use std::ffi::CStr;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys as sys;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use sys::{ibv_access_flags as access, ibv_qp_attr_mask as mask, ibv_wc_status as status};

use super::Config;
use crate::adapters::Choice;
use crate::memory::Memory;

/// Most requests in one queue pair.
pub(super) const SEND_MAX: usize = 128;
/// Most wake-ups under way to one queue pair: one, and one that is sent again after a new beginning.
const RECEIVE_MAX: u32 = 4;
/// Most bytes sent inline with a request, where the device supports so many.
const INLINE_MAX: u32 = 220;
/// Most requests per doorbell.
pub(super) const CHAIN_MAX: usize = 32;
/// Time before a request is sent again, 4.096 µs times two to the power of this (17 ms), and the number of retries.
/// Finite, because otherwise no peer would ever be found gone.
const TIMEOUT: u8 = 12;
const RETRIES: u8 = 3;
/// Retry timer (0.64 ms) and number of retries of a wake-up that finds no receive posted, which happens only for an
/// instant while the receiver begins again.
const NO_ROOM_TIMER: u8 = 12;
const NO_ROOM_RETRIES: u8 = 6;
/// Most reads under way on one queue pair.
const READS_MAX: u8 = 16;

/// An opened device: the port in use, and the protection domain of all registrations.
#[derive(Debug)]
pub(super) struct Adapter {
    context: NonNull<sys::ibv_context>,
    domain: NonNull<sys::ibv_pd>,
    port: u8,
    gid_index: u8,
    traffic_class: u8,
    /// The address for others.
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    /// In units of the verbs: 1 is 256 bytes, 5 is 4096.
    pub(super) mtu: u8,
    pub(super) reads: u8,
    queue_max: i32,
}

// SAFETY: libibverbs takes its calls from any thread, several at a time.
unsafe impl Send for Adapter {}
// SAFETY: as above.
unsafe impl Sync for Adapter {}

/// Converts a null pointer or an error code into an error.
fn made<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

fn done(code: i32) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.abs())) }
}

impl Adapter {
    pub(super) fn open(choice: &Choice, config: &Config) -> io::Result<Self> {
        // SAFETY: the list is freed once the device is open, which outlives it; names are strings.
        let context = unsafe {
            let mut count = 0;
            let list = made(sys::ibv_get_device_list(&raw mut count))?;
            let count = usize::try_from(count).unwrap_or(0);
            let devices = std::slice::from_raw_parts(list.as_ptr(), count);
            let named = devices.iter().find(|device| {
                let name = CStr::from_ptr(sys::ibv_get_device_name(**device));
                name.to_bytes() == choice.device.as_bytes()
            });
            let absent = || io::Error::new(io::ErrorKind::NotFound, "libibverbs does not know it");
            let context = named.ok_or_else(absent).and_then(|it| made(sys::ibv_open_device(*it)));
            sys::ibv_free_device_list(list.as_ptr());
            context?
        };
        // SAFETY: the context was just opened.
        let domain = made(unsafe { sys::ibv_alloc_pd(context.as_ptr()) });
        let domain = domain.inspect_err(|_| {
            // SAFETY: nothing was made of it.
            unsafe { sys::ibv_close_device(context.as_ptr()) };
        })?;
        let mut adapter = Self {
            context,
            domain,
            port: choice.port,
            gid_index: choice.gid_index,
            traffic_class: config.traffic_class,
            gid: [0; 16],
            lid: 0,
            mtu: 1,
            reads: 1,
            queue_max: 0,
        };
        // From here on dropping it closes it.
        adapter.ask(config)?;
        Ok(adapter)
    }

    fn ask(&mut self, config: &Config) -> io::Result<()> {
        // SAFETY: plain structures, for which zero is a value, filled by the calls; the context is
        // open, and the port and the index were seen in its tables.
        unsafe {
            let mut device: sys::ibv_device_attr = mem::zeroed();
            done(sys::ibv_query_device(self.context.as_ptr(), &raw mut device))?;
            let mut port: sys::ibv_port_attr = mem::zeroed();
            done(sys::___ibv_query_port(self.context.as_ptr(), self.port, &raw mut port))?;
            let mut gid = sys::ibv_gid { raw: [0; 16] };
            let index = i32::from(self.gid_index);
            done(sys::ibv_query_gid(self.context.as_ptr(), self.port, index, &raw mut gid))?;
            self.gid = gid.raw;
            self.lid = port.lid;
            self.mtu = config.mtu.map_or(port.active_mtu as u8, |mtu| {
                (mtu.max(256).ilog2() as u8 - 7).min(port.active_mtu as u8)
            });
            let reads = device.max_qp_rd_atom.min(device.max_qp_init_rd_atom);
            self.reads = u8::try_from(reads).unwrap_or(READS_MAX).clamp(1, READS_MAX);
            self.queue_max = device.max_cqe.max(1);
        }
        Ok(())
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // SAFETY: whatever was made of them has held an Arc of this.
        unsafe {
            sys::ibv_dealloc_pd(self.domain.as_ptr());
            sys::ibv_close_device(self.context.as_ptr());
        }
    }
}

/// Which requests may reach registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// This process's own requests.
    Ours,
    /// Also reads by peers that have the key.
    Readers,
    /// Also writes by peers that have the key.
    All,
}

/// A registration of memory with the device. The memory must outlive it.
#[derive(Debug)]
pub(super) struct Registration {
    region: NonNull<sys::ibv_mr>,
    adapter: Arc<Adapter>,
}

// SAFETY: libibverbs takes its calls from any thread.
unsafe impl Send for Registration {}
// SAFETY: a shared reference reads two numbers that never change.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers all of `memory`, which must not be dropped before the registration.
    pub(super) fn new(adapter: &Arc<Adapter>, memory: &Memory, reach: Reach) -> io::Result<Self> {
        let mut flags = access::IBV_ACCESS_LOCAL_WRITE;
        if reach != Reach::Ours {
            flags |= access::IBV_ACCESS_REMOTE_READ;
        }
        if reach == Reach::All {
            flags |= access::IBV_ACCESS_REMOTE_WRITE;
        }
        let (at, len) = (memory.address() as *mut _, memory.len());
        // SAFETY: the mapping is ours, and as long as that. What the device writes into it is seen
        // through atomics only.
        let region = unsafe { sys::ibv_reg_mr(adapter.domain.as_ptr(), at, len, bits(flags.0)) };
        Ok(Self { region: made(region)?, adapter: Arc::clone(adapter) })
    }

    /// The key for our own requests.
    pub(super) fn local(&self) -> u32 {
        // SAFETY: registered, and never written after that.
        unsafe { (*self.region.as_ptr()).lkey }
    }

    /// The key for requests of peers.
    pub(super) fn remote(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.region.as_ptr()).rkey }
    }

    /// Takes the registration back. When this returns, the device no longer touches the memory. If that fails, the
    /// registration stays for ever.
    pub(super) fn end(self) -> io::Result<()> {
        // SAFETY: registered, and not used after this, as `drop` is not run.
        let ended = done(unsafe { sys::ibv_dereg_mr(self.region.as_ptr()) });
        let this = mem::ManuallyDrop::new(self);
        // SAFETY: read once, and `drop` does not run.
        drop(unsafe { ptr::read(&raw const this.adapter) });
        ended
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: registered.
        let ended = done(unsafe { sys::ibv_dereg_mr(self.region.as_ptr()) });
        debug_assert!(ended.is_ok(), "{ended:?}");
    }
}

/// The completion queue of all requests, and of wake-ups.
#[derive(Debug)]
pub(super) struct Queue {
    ends: NonNull<sys::ibv_cq>,
    channel: NonNull<sys::ibv_comp_channel>,
    adapter: Arc<Adapter>,
}

// SAFETY: libibverbs takes its calls from any thread.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The number of the queue pair.
    pub(super) pair: u32,
    pub(super) id: u64,
    pub(super) how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Done,
    /// The other side refused it: nothing of it was done, nor of requests posted after it.
    Refused(u32),
    /// A request before it has failed.
    Flushed,
    /// It may have been done, or not.
    Failed(u32),
}

impl Queue {
    pub(super) fn new(adapter: &Arc<Adapter>) -> io::Result<Self> {
        // SAFETY: the context is open, and outlives both as they hold the adapter.
        unsafe {
            let context = adapter.context.as_ptr();
            let channel = made(sys::ibv_create_comp_channel(context))?;
            let size = pairs_room(1);
            let queue = sys::ibv_create_cq(context, size, ptr::null_mut(), channel.as_ptr(), 0);
            let queue = made(queue).inspect_err(|_| {
                sys::ibv_destroy_comp_channel(channel.as_ptr());
            })?;
            let this = Self { ends: queue, channel, adapter: Arc::clone(adapter) };
            let flags = fcntl_getfl(&this)?;
            fcntl_setfl(&this, flags | OFlags::NONBLOCK)?;
            Ok(this)
        }
    }

    /// Makes room for the completions of so many connections.
    pub(super) fn reserve(&self, connections: usize) -> io::Result<()> {
        // SAFETY: the queue is ours.
        let room = unsafe { (*self.ends.as_ptr()).cqe };
        let size = pairs_room(connections.next_power_of_two()).min(self.adapter.queue_max);
        if pairs_room(connections) > self.adapter.queue_max {
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "too many connections"));
        }
        if size <= room {
            return Ok(());
        }
        // SAFETY: as above.
        done(unsafe { sys::ibv_resize_cq(self.ends.as_ptr(), size) })
    }

    /// Takes completions, up to the length of `into`. Returns how many.
    pub(super) fn poll(&self, into: &mut [End]) -> usize {
        const BATCH: usize = 16;
        let mut ends = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; BATCH];
        let most = i32::try_from(into.len().min(BATCH)).expect("a few");
        // SAFETY: room for as many as are asked for.
        let count = unsafe { sys::ibv_poll_cq(self.ends.as_ptr(), most, ends.as_mut_ptr().cast()) };
        let count = usize::try_from(count).unwrap_or(0);
        for (into, end) in into.iter_mut().zip(&ends[..count]) {
            // SAFETY: so many were filled.
            let end = unsafe { end.assume_init_ref() };
            let how = match end.status {
                status::IBV_WC_SUCCESS => How::Done,
                status::IBV_WC_WR_FLUSH_ERR => How::Flushed,
                status::IBV_WC_REM_INV_REQ_ERR
                | status::IBV_WC_REM_ACCESS_ERR
                | status::IBV_WC_REM_OP_ERR => How::Refused(end.status),
                other => How::Failed(other),
            };
            *into = End { pair: end.qp_num, id: end.wr_id, how };
        }
        count
    }

    /// Makes the channel readable, once, at the next completion.
    pub(super) fn arm(&self) {
        // SAFETY: the queue is ours.
        let armed = unsafe { sys::ibv_req_notify_cq(self.ends.as_ptr(), 0) };
        debug_assert_eq!(armed, 0);
    }

    /// Takes the events that made the channel readable.
    pub(super) fn quieten(&self) {
        let (mut queue, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: both are ours, and the channel does not block; each event is acknowledged.
        unsafe {
            while sys::ibv_get_cq_event(self.channel.as_ptr(), &raw mut queue, &raw mut context)
                == 0
            {
                sys::ibv_ack_cq_events(queue, 1);
            }
        }
    }
}

/// Most completions of so many connections. Each has two queue pairs.
fn pairs_room(connections: usize) -> i32 {
    let ends = connections.saturating_mul(SEND_MAX + 2 * RECEIVE_MAX as usize);
    i32::try_from(ends).unwrap_or(i32::MAX)
}

/// The text of a status of the verbs.
pub(super) fn explain(status: u32) -> String {
    // SAFETY: always a string that lives for ever.
    let text = unsafe { CStr::from_ptr(sys::ibv_wc_status_str(status)) };
    text.to_string_lossy().into_owned()
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as the channel is there.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the queue pairs have held an Arc of this; all events are acknowledged.
        unsafe {
            sys::ibv_destroy_cq(self.ends.as_ptr());
            sys::ibv_destroy_comp_channel(self.channel.as_ptr());
        }
    }
}

/// One direction of a connection: all its requests are ours, or all are the peer's.
#[derive(Debug)]
pub(super) struct Pair {
    handle: NonNull<sys::ibv_qp>,
    inline_max: u32,
    queue: Arc<Queue>,
}

// SAFETY: libibverbs takes its calls from any thread.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

/// A queue pair of a peer: address and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Far {
    pub(super) gid: [u8; 16],
    pub(super) lid: u16,
    pub(super) mtu: u8,
    pub(super) reads: u8,
    pub(super) pair: u32,
}

/// A request to post.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posted {
    pub(super) id: u64,
    pub(super) what: What,
    /// Our bytes: address, length, and the key of their registration.
    pub(super) from: (u64, u32, u32),
    /// The peer's: address and key.
    pub(super) to: (u64, u32),
    pub(super) signalled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Write,
    Read,
    /// A write of zero bytes that creates a completion at the other side.
    Wake,
}

impl Pair {
    pub(super) fn new(queue: &Arc<Queue>) -> io::Result<Self> {
        // SAFETY: a plain structure for which zero is a value; the queue and the domain outlive the
        // pair as it holds the queue, and the queue the adapter.
        unsafe {
            let mut wish: sys::ibv_qp_init_attr = mem::zeroed();
            wish.send_cq = queue.ends.as_ptr();
            wish.recv_cq = queue.ends.as_ptr();
            wish.qp_type = sys::ibv_qp_type::IBV_QPT_RC;
            wish.cap.max_send_wr = SEND_MAX as u32;
            wish.cap.max_recv_wr = RECEIVE_MAX;
            wish.cap.max_send_sge = 1;
            wish.cap.max_recv_sge = 1;
            wish.cap.max_inline_data = INLINE_MAX;
            let domain = queue.adapter.domain.as_ptr();
            let mut pair = sys::ibv_create_qp(domain, &raw mut wish);
            if pair.is_null() {
                // Some devices take nothing inline.
                wish.cap.max_inline_data = 0;
                pair = sys::ibv_create_qp(domain, &raw mut wish);
            }
            let pair = made(pair)?;
            let inline_max = wish.cap.max_inline_data;
            Ok(Self { handle: pair, inline_max, queue: Arc::clone(queue) })
        }
    }

    /// The number by which peers name it.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: made, and never written after that.
        unsafe { (*self.handle.as_ptr()).qp_num }
    }

    fn modify(&self, attr: &mut sys::ibv_qp_attr, what: mask) -> io::Result<()> {
        // SAFETY: the pair is ours, and what `what` names is set.
        done(unsafe { sys::ibv_modify_qp(self.handle.as_ptr(), attr, bits(what.0)) })
    }

    /// Discards everything, and serves nobody.
    pub(super) fn reset(&self) -> io::Result<()> {
        let mut attr = attributes();
        attr.qp_state = sys::ibv_qp_state::IBV_QPS_RESET;
        self.modify(&mut attr, mask::IBV_QP_STATE)
    }

    /// Connects anew, from any state: sends packets numbered from `ours` on, expects `theirs`.
    pub(super) fn connect(
        &self,
        far: &Far,
        (ours, theirs): (u32, u32),
        served: bool,
    ) -> io::Result<()> {
        use sys::ibv_qp_state as state;
        let adapter = &self.queue.adapter;
        self.reset()?;
        let mut attr = attributes();
        attr.qp_state = state::IBV_QPS_INIT;
        attr.port_num = adapter.port;
        attr.qp_access_flags = if served { rights(true) } else { 0 };
        let what = mask::IBV_QP_STATE
            | mask::IBV_QP_PKEY_INDEX
            | mask::IBV_QP_PORT
            | mask::IBV_QP_ACCESS_FLAGS;
        self.modify(&mut attr, what)?;
        if served {
            for _ in 0..RECEIVE_MAX {
                self.receive()?;
            }
        }
        attr.qp_state = state::IBV_QPS_RTR;
        attr.path_mtu = u32::from(far.mtu.min(adapter.mtu));
        attr.dest_qp_num = far.pair;
        attr.rq_psn = theirs;
        attr.max_dest_rd_atomic = adapter.reads;
        attr.min_rnr_timer = NO_ROOM_TIMER;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = adapter.port;
        attr.ah_attr.dlid = far.lid;
        attr.ah_attr.grh.dgid.raw = far.gid;
        attr.ah_attr.grh.sgid_index = adapter.gid_index;
        attr.ah_attr.grh.hop_limit = 64;
        attr.ah_attr.grh.traffic_class = adapter.traffic_class;
        let what = mask::IBV_QP_STATE
            | mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attr, what)?;
        attr.qp_state = state::IBV_QPS_RTS;
        attr.sq_psn = ours;
        attr.timeout = TIMEOUT;
        attr.retry_cnt = RETRIES;
        attr.rnr_retry = NO_ROOM_RETRIES;
        attr.max_rd_atomic = adapter.reads.min(far.reads);
        let what = mask::IBV_QP_STATE
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, what)
    }

    /// Allows or forbids writes of the peer. Writes that were checked before may still happen.
    pub(super) fn let_write(&self, may: bool) -> io::Result<()> {
        let mut attr = attributes();
        attr.qp_access_flags = rights(may);
        self.modify(&mut attr, mask::IBV_QP_ACCESS_FLAGS)
    }

    /// Whether the peer's requests are still served.
    pub(super) fn serves(&self) -> bool {
        // SAFETY: plain structures for which zero is a value; the pair is ours.
        unsafe {
            let mut attr = attributes();
            let mut wish: sys::ibv_qp_init_attr = mem::zeroed();
            let what = bits(mask::IBV_QP_STATE.0);
            let asked = sys::ibv_query_qp(self.handle.as_ptr(), &raw mut attr, what, &raw mut wish);
            asked == 0 && attr.qp_state == sys::ibv_qp_state::IBV_QPS_RTS
        }
    }

    /// Posts one more receive, for a wake-up.
    pub(super) fn receive(&self) -> io::Result<()> {
        // SAFETY: a plain structure for which zero is a value: of no memory, and the last.
        unsafe {
            let mut request: sys::ibv_recv_wr = mem::zeroed();
            let mut bad = ptr::null_mut();
            done(sys::ibv_post_recv(self.handle.as_ptr(), &raw mut request, &raw mut bad))
        }
    }

    /// Posts at most [`CHAIN_MAX`] requests with one doorbell.
    ///
    /// The caller keeps their memory until they have ended.
    pub(super) fn post(&self, posted: &[Posted]) -> io::Result<()> {
        assert!(posted.len() <= CHAIN_MAX);
        let mut spans = [sys::ibv_sge { addr: 0, length: 0, lkey: 0 }; CHAIN_MAX];
        // SAFETY: plain structures for which zero is a value.
        let mut requests: [sys::ibv_send_wr; CHAIN_MAX] = unsafe { mem::zeroed() };
        let requests_at = requests.as_mut_ptr();
        let spans_at = spans.as_mut_ptr();
        for (i, it) in posted.iter().enumerate() {
            use sys::ibv_send_flags as flags;
            use sys::ibv_wr_opcode as opcode;
            let (addr, length, lkey) = it.from;
            let mut send_flags = 0;
            if it.signalled {
                send_flags |= flags::IBV_SEND_SIGNALED.0;
            }
            if it.what == What::Write && length > 0 && length <= self.inline_max {
                send_flags |= flags::IBV_SEND_INLINE.0;
            }
            // SAFETY: `i` is within both arrays, and both outlive the call below.
            unsafe {
                let (request, span) = (&mut *requests_at.add(i), spans_at.add(i));
                *span = sys::ibv_sge { addr, length, lkey };
                request.wr_id = it.id;
                request.next =
                    if i + 1 < posted.len() { requests_at.add(i + 1) } else { ptr::null_mut() };
                request.sg_list = span;
                request.num_sge = i32::from(length > 0);
                request.opcode = match it.what {
                    What::Write => opcode::IBV_WR_RDMA_WRITE,
                    What::Read => opcode::IBV_WR_RDMA_READ,
                    What::Wake => opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
                };
                request.send_flags = send_flags;
                request.wr.rdma = sys::rdma_t { remote_addr: it.to.0, rkey: it.to.1 };
            }
        }
        if posted.is_empty() {
            return Ok(());
        }
        let mut bad = ptr::null_mut();
        // SAFETY: a chain that ends; its memory is the caller's to keep.
        done(unsafe { sys::ibv_post_send(self.handle.as_ptr(), requests_at, &raw mut bad) })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: ours. When this returns it serves nobody, and nothing of it is under way here.
        let ended = done(unsafe { sys::ibv_destroy_qp(self.handle.as_ptr()) });
        debug_assert!(ended.is_ok(), "{ended:?}");
    }
}

/// Flags as the calls take them.
fn bits(flags: u32) -> i32 {
    flags.cast_signed()
}

fn attributes() -> sys::ibv_qp_attr {
    // SAFETY: a plain structure for which zero is a value.
    unsafe { mem::zeroed() }
}

fn rights(to_write: bool) -> u32 {
    let read = access::IBV_ACCESS_REMOTE_READ;
    if to_write { (read | access::IBV_ACCESS_REMOTE_WRITE).0 } else { read.0 }
}
