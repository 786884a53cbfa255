//! The launch function: load, decide, write.
