//! The contract, on a file and in memory.

mod fixture;

mod file {
    mainstay_conformance::suite!(crate::fixture::SqliteFixture::file);
}

mod memory {
    mainstay_conformance::suite!(crate::fixture::SqliteFixture::memory);
}
