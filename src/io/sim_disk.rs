//! A disk in memory that loses what was not flushed.
