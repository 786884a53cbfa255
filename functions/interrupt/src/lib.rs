//! The interrupt function: load, decide, write.
