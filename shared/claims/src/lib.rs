//! The claim machine: phases, records, leases, buckets and memories as values.
