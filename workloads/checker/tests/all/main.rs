//! Histories, right and wrong, and what the checks say of them: one program, as each one more takes seconds to build.

mod catalogue;
mod meanings;
mod noise;
mod partial;
mod projections;
mod serializable;
