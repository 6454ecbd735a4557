//! What touches the kernel: the disk trait with its real and simulated forms, the executor.
//!
//! Nothing above this module names glommio.

pub mod bench_disk;
pub mod blocks;
pub mod disk;
pub mod executor;
pub mod local;
pub mod pipe;
pub mod probe;
pub mod real_disk;
pub mod side_ring;
pub mod sim_disk;
pub mod sim_executor;
pub mod socket;
pub mod splice;
