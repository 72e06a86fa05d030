//! stub
pub struct Disk;
