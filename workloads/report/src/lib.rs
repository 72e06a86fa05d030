//! The page of measured and simulated results that `skein report` makes of other commands' reports.
//!
//! [`page`] reads the reports (`source`), says in which settings they differ (`settings`), joins
//! those that differ in one thing (`lines`), marks what is saturated (`saturation`) and draws
//! (`figures`, `plot`).

mod ccdf;
mod faults;
mod figures;
mod gap;
mod lines;
mod options;
pub mod page;
mod plot;
mod saturation;
mod settings;
mod source;
