//! Many databases, shared by many nodes (R24).

pub mod assignment;
