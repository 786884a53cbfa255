//! The sweep function: load, decide, write.
