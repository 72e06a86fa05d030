//! Histories of what clients asked and were told, and whether they were told right.

pub mod chart;
pub mod check;
pub mod history;
pub mod verify;
