//! Links the program as a shared library with an entry point, so that one file is the command and
//! `libcuda.so.1`.

fn main() {
    println!("cargo::rerun-if-changed=exports.map");
    println!("cargo::rustc-check-cfg=cfg(libcuda)");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let is_known = matches!(target("ARCH").as_str(), "x86_64" | "aarch64");
    if target("OS") != "linux" || target("ENV") != "gnu" || !is_known {
        return;
    }
    println!("cargo::rustc-cfg=libcuda");
    let directory = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let linker = "-Wl,-e,retrograph_sim_start,-soname,libcuda.so.1";
    let exports = format!("-Wl,--version-script={directory}/exports.map");
    for argument in ["-shared", "-nostartfiles", linker, &exports] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
