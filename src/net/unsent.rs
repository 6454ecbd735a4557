//! What replies keep in memory until they are sent: counted per connection and per core, so that
//! peers that ask much and read little hold a bounded part of the memory.
//!
//! Records of a reply may be the tail cache's or a log's pending memory: from the moment of the
//! read they live as long as the reply.

use std::cell::Cell;
use std::rc::Rc;

use crate::base::limits::{UNSENT_REPLY_BYTES_MAX, UNSENT_REPLY_BYTES_PER_CORE_MAX};
use crate::io::local::{Notified, Notify};

/// The unsent replies of a core.
#[derive(Debug, Default)]
pub struct CoreUnsent {
    held_bytes: Cell<usize>,
}

impl CoreUnsent {
    /// Bytes in memory of all replies that are there and not sent.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.get()
    }

    /// There is too much: requests should bring little.
    pub fn is_over(&self) -> bool {
        self.held_bytes.get() >= UNSENT_REPLY_BYTES_PER_CORE_MAX
    }
}

/// The unsent replies of a connection.
#[derive(Debug)]
pub struct ConnectionUnsent {
    core: Rc<CoreUnsent>,
    /// Of replies that are there.
    held_bytes: Cell<usize>,
    /// Of replies that are not there yet, at most.
    expected_bytes: Cell<usize>,
    changed: Notify,
}

impl ConnectionUnsent {
    pub fn new(core: Rc<CoreUnsent>) -> Rc<Self> {
        Rc::new(Self {
            core,
            held_bytes: Cell::new(0),
            expected_bytes: Cell::new(0),
            changed: Notify::new(),
        })
    }

    /// A charge for the reply to one request; of nothing, for now.
    pub fn charge(self: &Rc<Self>) -> ReplyCharge {
        ReplyCharge {
            connection: Rc::clone(self),
            held_bytes: Cell::new(0),
            expected_bytes: Cell::new(0),
        }
    }

    /// Whether another request may start: the connection's bytes are below its limit, and while
    /// the core's are above theirs, it holds none itself. So nobody waits for others who do not
    /// read.
    pub fn has_room(&self) -> bool {
        let bytes = self
            .held_bytes
            .get()
            .saturating_add(self.expected_bytes.get());
        bytes < UNSENT_REPLY_BYTES_MAX && (!self.core.is_over() || self.held_bytes.get() == 0)
    }

    /// Rings when the bytes change.
    pub fn changed(&self) -> Notified {
        self.changed.notified()
    }
}

/// What the reply to one request is charged with until it is dropped.
#[derive(Debug)]
pub struct ReplyCharge {
    connection: Rc<ConnectionUnsent>,
    held_bytes: Cell<usize>,
    expected_bytes: Cell<usize>,
}

impl ReplyCharge {
    /// The reply will bring at most so many bytes: they count for the connection until it is there.
    /// One reply counts for half of the limit at most, so that other requests, perhaps the one
    /// that it waits for, can start beside a parked fetch.
    pub fn expect(&self, bytes: usize) {
        self.set(self.held_bytes.get(), bytes.min(UNSENT_REPLY_BYTES_MAX / 2));
    }

    /// The reply is there, with so many bytes in memory.
    pub fn settle(&self, bytes: usize) {
        self.set(bytes, 0);
    }

    /// The core holds too much already.
    pub fn is_core_over(&self) -> bool {
        self.connection.core.is_over()
    }

    fn set(&self, held_bytes: usize, expected_bytes: usize) {
        let connection = &*self.connection;
        let held_before = self.held_bytes.replace(held_bytes);
        let expected_before = self.expected_bytes.replace(expected_bytes);
        if (held_before, expected_before) == (held_bytes, expected_bytes) {
            return;
        }
        for total in [&connection.held_bytes, &connection.core.held_bytes] {
            total.set((total.get() - held_before).saturating_add(held_bytes));
        }
        let expected = &connection.expected_bytes;
        expected.set((expected.get() - expected_before).saturating_add(expected_bytes));
        connection.changed.notify_all();
    }
}

impl Drop for ReplyCharge {
    fn drop(&mut self) {
        self.set(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_expected_counts_for_the_connection_until_it_is_there() {
        let core = Rc::new(CoreUnsent::default());
        let connection = ConnectionUnsent::new(core.clone());
        let charge = connection.charge();
        charge.expect(usize::MAX);
        assert!(connection.has_room(), "one fetch may be parked");
        let second = connection.charge();
        second.expect(usize::MAX);
        assert!(!connection.has_room());
        drop(second);
        assert_eq!(core.held_bytes(), 0);
        charge.settle(1000);
        assert!(connection.has_room());
        assert_eq!(core.held_bytes(), 1000);
        drop(charge);
        assert_eq!(core.held_bytes(), 0);
    }

    #[test]
    fn over_the_cores_limit_a_connection_starts_a_request_only_while_it_holds_nothing() {
        let core = Rc::new(CoreUnsent::default());
        let hoarder = ConnectionUnsent::new(core.clone());
        let other = ConnectionUnsent::new(core.clone());
        let hoard = hoarder.charge();
        hoard.settle(UNSENT_REPLY_BYTES_PER_CORE_MAX);
        let small = other.charge();
        assert!(other.has_room() && small.is_core_over());
        small.settle(1);
        assert!(!other.has_room());
        drop(small);
        assert!(other.has_room());
        drop(hoard);
        assert!(hoarder.has_room());
    }
}
