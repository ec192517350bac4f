//! Load generator and reports.
fn main() {}
