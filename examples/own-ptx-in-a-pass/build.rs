//! Embeds the kernel as PTX and, if there is a `ptxas`, as machine code.

use retrograph_build::{Assembly, Image, Images};

fn main() -> std::process::ExitCode {
    Images::new("kernels")
        .targets(["sm_75", "sm_80", "sm_90", "sm_100"])
        .image(Image::ptx_file("src/scale.ptx"))
        // The driver compiles where the build finds no ptxas.
        .assembly(Assembly::IfFound)
        .run()
}
