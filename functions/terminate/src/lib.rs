//! The terminate function: load, decide, write.
