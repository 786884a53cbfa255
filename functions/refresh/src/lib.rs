//! The refresh function: load, decide, write.
