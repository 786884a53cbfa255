//! Newtypes with units: quantities, money, identifiers.
