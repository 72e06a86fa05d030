//! What Skein is measured with, and what shows that it was right while it was measured.

pub mod keys;
pub mod mix;
