//! The schedule function: load, decide, write.
