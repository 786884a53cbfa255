//! The register function: load, decide, write.
