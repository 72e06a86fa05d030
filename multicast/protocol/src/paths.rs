//! How often a replica took each path that is not the common one.

/// Declares a struct of counts, whose names can be listed: a simulation that never takes a path of
/// it has a hole.
#[macro_export]
macro_rules! paths {
    ($(#[$about:meta])* $type:ident: $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type { $($(#[$doc])* pub $name: u64,)* }

        impl $type {
            /// Names and counts.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds another's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}
