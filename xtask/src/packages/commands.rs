//! Runs the commands in the README of each published program, in a new folder on the simulator.
//!
//! A command runs as printed, except that the program is the debug build of its archive, that
//! `finetune` takes one or two steps, and that sequences have 64 tokens.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::workspace::check;

/// Commands that need a GPU or end only when they are stopped.
const LEFT_OUT: &[&str] = &["--device cuda", "serve "];

/// Replaces `tokenizer_config.json` of the model that commands use: a tokenizer of bytes has
/// neither an end token, which GGUF needs, nor a chat template.
const TOKENIZER: &str = r#"{
  "add_bos_token": false,
  "chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}",
  "eos_token": "!",
  "tokenizer_class": "PreTrainedTokenizerFast"
}"#;

/// Runs the commands of the README of `package` in `folder`, which is made. `program` is its
/// program, and `client` one that uses the driver.
pub(super) fn run(
    package: &str,
    readme: &str,
    program: &Path,
    client: &Path,
    folder: &Path,
) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("README.md"), readme)?;
    let start = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("\"$0\" {line}")]).arg(program);
        shell.current_dir(folder).stdin(Stdio::null());
        check(shell)
    };
    match package {
        "retrograph" => {
            start("finetune --text README.md --steps 1 --model-out base")?;
            fs::write(folder.join("base/tokenizer_config.json"), TOKENIZER)?;
            let examples = "{\"prompt\": \"a\", \"completion\": \"b\"}\n".repeat(20);
            fs::write(folder.join("train.jsonl"), &examples)?;
            fs::write(folder.join("test.jsonl"), &examples)?;
        }
        _ => {
            fs::copy(client, folder.join("program"))?;
        }
    }
    for line in commands(readme, package)? {
        start(&line)?;
    }
    Ok(())
}

/// The arguments of the program in each command of a README.
fn commands(readme: &str, package: &str) -> anyhow::Result<Vec<String>> {
    let prefixes = ["cargo run --release -- ".to_owned(), format!("{package} ")];
    let (mut found, mut lines) = (Vec::new(), readme.lines());
    while let Some(line) = lines.next() {
        if line != "```sh" {
            continue;
        }
        for line in lines.by_ref().take_while(|line| *line != "```") {
            let arguments = prefixes.iter().find_map(|prefix| line.strip_prefix(prefix.as_str()));
            let arguments = arguments.with_context(|| format!("not a command of it: `{line}`"))?;
            if LEFT_OUT.iter().any(|part| arguments.contains(part)) {
                continue;
            }
            // A resumed run takes more steps than the earlier one.
            let steps = if arguments.contains("--resume") { 2 } else { 1 };
            found.push(match arguments.split_once(' ') {
                Some(("finetune", rest)) => format!("finetune --seq 64 --steps {steps} {rest}"),
                Some(("eval", rest)) => format!("eval --seq 64 {rest}"),
                _ => arguments.to_owned(),
            });
        }
    }
    if found.is_empty() {
        bail!("no command of {package} in a block `sh`");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_lines_of_blocks_that_need_no_gpu() {
        let readme = "```text\n$ p install\n```\n\n```sh\np finetune --text a  # one\n\
                      cargo run --release -- finetune --resume\np serve --port 1\n\
                      p bench --device cuda:0\np eval \"a b\"\n```\n";
        let expected = [
            "finetune --seq 64 --steps 1 --text a  # one",
            "finetune --seq 64 --steps 2 --resume",
            "eval --seq 64 \"a b\"",
        ];
        assert_eq!(commands(readme, "p").unwrap(), expected);
    }

    #[test]
    fn a_readme_without_commands_or_with_others_is_refused() {
        for (readme, reason) in
            [("```text\np a\n```\n", "no command"), ("```sh\nls\n```\n", "`ls`")]
        {
            let refused = commands(readme, "p").unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
