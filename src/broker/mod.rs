//! To be filled.

pub mod fetch_session;
