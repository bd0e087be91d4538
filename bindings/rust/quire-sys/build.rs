//! Where libquire is: QUIRE_LIB_DIR, or what pkg-config says.
use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=QUIRE_LIB_DIR");
    println!("cargo:rustc-link-lib=dylib=quire");
    if let Ok(folder) = env::var("QUIRE_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        return;
    }
    let found = Command::new("pkg-config").args(["--variable=libdir", "quire"]).output();
    match found {
        Ok(answer) if answer.status.success() => {
            println!("cargo:rustc-link-search=native={}", String::from_utf8_lossy(&answer.stdout).trim());
        }
        _ => println!("cargo:warning=pkg-config does not know quire: set QUIRE_LIB_DIR to the folder of libquire.so"),
    }
}
