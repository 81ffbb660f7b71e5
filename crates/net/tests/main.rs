//! Tests of the HTTP edge over connections.

mod edge;
mod framing;
