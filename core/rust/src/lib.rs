//! Gathers the crates whose C functions the server calls.

pub use promptcached_hf as hf;
pub use promptcached_llg as llg;
pub use promptcached_remote as remote;
