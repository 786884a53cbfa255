//! The relay function: load, decide, write.
