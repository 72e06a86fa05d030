//! Skein's client library.
