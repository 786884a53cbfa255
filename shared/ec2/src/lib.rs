//! Pure knowledge of EC2: instance types, offerings, fleet requests, user data, error classes.

pub mod errors;
pub mod interruption;
