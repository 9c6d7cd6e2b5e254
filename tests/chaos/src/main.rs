//! The program `mainstay-chaos`.

fn main() {}
