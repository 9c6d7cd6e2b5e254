//! What a provider can and can't do. Gaps are declared here, never by leaving a test out.

/// What a provider can and can't do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// A payload may contain a NUL character.
    pub nul_in_payload: bool,
    /// The database has a clock of its own, apart from the application's.
    pub own_clock: bool,
    /// The database has roles, so least privilege can be shown.
    pub roles: bool,
    /// Other processes can use the same database.
    pub shared: bool,
    /// The database has functions that any language can call.
    pub functions: bool,
}

impl Capabilities {
    /// Nothing beyond the contract.
    pub const fn none() -> Self {
        Self { nul_in_payload: false, own_clock: false, roles: false, shared: false, functions: false }
    }
}
