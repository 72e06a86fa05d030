//! Counters of uncommon code paths.

/// Declares a struct of counters with a list of their names. If a simulation never takes one of the paths, it has a
/// gap.
#[macro_export]
macro_rules! paths {
    ($(#[$about:meta])* $type:ident: $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type { $($(#[$doc])* pub $name: u64,)* }

        impl $type {
            /// Names and values of all counters.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds the counters of `other`.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}
