//! stub
pub struct Inspection; pub struct InspectError; pub fn inspect(){}
