//! The consolidate function: load, decide, write.
