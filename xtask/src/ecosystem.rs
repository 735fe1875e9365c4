//! Tests with third-party Python programs: OpenAI's client queries `retrograph serve`, and
//! llama.cpp reads exported files. Both results are compared with the results of transformers.

use crate::toolchain;
use crate::workspace::{BUILD_PROGRAMS, check, command, root, target_dir};

pub(crate) fn run() -> anyhow::Result<()> {
    check(command("cargo", BUILD_PROGRAMS))?;
    let scripts = root().join("crates/cli/tests/ecosystem");
    let packages = toolchain::python_packages("ecosystem", &scripts.join("requirements.txt"))?;
    for script in ["openai_client.py", "llama_cpp.py"] {
        let mut command = command("python3", &[]);
        command.arg(scripts.join(script)).arg(target_dir().join("debug/retrograph"));
        command.arg(root().join("crates/finetune/tests/golden/models"));
        command.env("PYTHONPATH", &packages);
        check(command)?;
    }
    Ok(())
}
