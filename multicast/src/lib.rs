//! Atomic multicast: Skein's protocols on a fabric.
