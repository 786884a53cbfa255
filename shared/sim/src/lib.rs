//! A deterministic simulated region and cluster, with faults and checkers.
