//! Settings that Kafka does not have; their names start with `ringmain.`.

use super::{Setting, settings};

pub(super) const ROWS: &[Setting] = settings! {
    ["ringmain.admin.listener", String, "127.0.0.1:9644", NonEmpty, High, ReadOnly, Effective,
      "The address of the admin HTTP server (`/metrics`, `/healthz`, `/readyz`), as host:port; \
       port 0 picks a free one."],
    ["ringmain.commit.log.bytes", Long, "268435456", AtLeast(4194304), Medium, ReadOnly, Effective,
      "The size of each core's commit log, in bytes. It is written once at the first start, and \
       again when the size changes."],
    ["ringmain.cores", String, "all", NonEmpty, High, ReadOnly, Effective,
      "The cores that Ringmain runs on, one executor each: `all` the process may use, or a list \
       such as `0-3` or `0,2`."],
    ["ringmain.network.in.bytes", Long, "134217728", AtLeast(1048576), Medium, ReadOnly, Effective,
      "The most that the requests being read or processed on one core may occupy, in bytes; \
       beyond it the sockets are not read."],
    ["ringmain.tail.cache.bytes", Long, "268435456", AtLeast(0), High, ReadOnly, Effective,
      "How much of the newest records one core keeps in memory for its consumers, in bytes."],
};
