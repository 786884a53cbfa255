//! The Kubernetes adapter: snapshot and mutations.
