//! Compares driver-sys and nccl-sys with all sources of their interfaces; planted errors are the
//! negative control.

mod confirmed;
mod nccl;
mod old_crate;
mod planted;
mod symbols;

use std::io::Write as _;
use std::sync::LazyLock;

use retrograph_abi_check::check::Oracles;
use retrograph_abi_check::tools::{self, Tools};

/// All sources of the driver. Without the tools, reports the skip once and returns `None`.
fn oracles() -> Option<&'static Oracles> {
    static ORACLES: LazyLock<Option<Oracles>> = LazyLock::new(|| {
        let tools = tools()?;
        Some(Oracles::read(tools).unwrap_or_else(|error| panic!("{error}")))
    });
    ORACLES.as_ref()
}

fn tools() -> Option<&'static Tools> {
    static TOOLS: LazyLock<Option<Tools>> = LazyLock::new(find);
    TOOLS.as_ref()
}

fn find() -> Option<Tools> {
    match tools::find() {
        Ok(tools) => Some(tools),
        Err(missing) if std::env::var_os(tools::REQUIRE).is_some() => panic!("{missing}"),
        Err(missing) => {
            // Writes to the stream directly, since the harness captures the output of passing
            // tests.
            let line = format!("skipped: nothing is compared with cuda.h: {missing}\n");
            std::io::stderr().write_all(line.as_bytes()).expect("standard error can be written");
            None
        }
    }
}
