//! The C functions of libquire: `quire.h` has their rules. `bindings.rs` is made by `bindings.sh`.
#![allow(non_camel_case_types, clippy::all)]
include!("bindings.rs");
