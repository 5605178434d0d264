//! Removes the unwind tables from the binary of the profile `size`, which makes it an eighth
//! smaller. In this profile a panic aborts without unwinding. It still prints its message and
//! source line, but no backtrace.
//!
//! On systems other than Linux, in other profiles, and in programs that use the library, this
//! script does nothing. It was tested with two linkers on Linux.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/without-unwind-tables.ld");
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    if let (true, true, Some(root)) =
        (is_linux, profile_is(&out, "size"), std::env::var_os("CARGO_MANIFEST_DIR"))
    {
        let script = Path::new(&root).join("build/without-unwind-tables.ld");
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
        println!("cargo::rustc-link-arg-bins=-T{}", script.display());
    }
}

/// Returns whether the profile is `name`. Cargo gives build scripts the profile only as a part of
/// the output directory: `…/size/build/rowstone-…/out`.
fn profile_is(out: &Path, name: &str) -> bool {
    out.ancestors().nth(3).and_then(Path::file_name).is_some_and(|profile| profile == name)
}
