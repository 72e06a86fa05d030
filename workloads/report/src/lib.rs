//! The page of measured and simulated results that `skein report` makes of other commands' reports.
//!
//! [`page`] reads the reports (`source`), says in which settings they differ (`settings`), joins
//! those that differ in one thing (`lines`), marks what is saturated (`saturation`) and draws
//! (`figures`, `plot`).
//!
//! [`advice::advise`] reads the same reports, and says which ordering suits their loads.

pub mod advice;
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
