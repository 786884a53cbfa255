//! The Kubernetes API types that Whittle reads and writes.
