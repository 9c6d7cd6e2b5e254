//! The runtime: services with one start, started, stop contract, and the builder that puts them together.
