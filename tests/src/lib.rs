//! Nothing is built from here: the tests are in `it/`.
