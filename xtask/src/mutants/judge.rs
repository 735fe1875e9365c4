//! The verdicts of the parser and of `ptxas` on a text, and the kind of their difference.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

/// The verdict of `ptxas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It assembled the text.
    Accepted,
    /// Rejected the text with this first error.
    Rejected(String),
    /// It crashed.
    Crashed,
}

/// A text that only the parser or only `ptxas` accepts.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// The kind: the rejecting side and its message, without names and numbers.
    pub(crate) kind: String,
    /// The rejected line.
    pub(crate) line: String,
}

/// Assembles `text` in `folder`.
pub(crate) fn assemble(ptxas: &Path, folder: &Path, text: &str) -> anyhow::Result<Verdict> {
    let (source, output) = (folder.join("mutant.ptx"), folder.join("mutant.cubin"));
    std::fs::write(&source, text)?;
    // Assembles for the target that the text names.
    let target = text.split_whitespace().skip_while(|word| *word != ".target").nth(1);
    let target = target.filter(|name| name.starts_with("sm_")).unwrap_or("sm_90");
    let mut command = Command::new(ptxas);
    command.arg("-O0").arg(format!("-arch={target}")).arg(&source).arg("-o").arg(&output);
    let output = command.output().context("cannot start ptxas")?;
    if output.status.success() {
        return Ok(Verdict::Accepted);
    }
    if output.status.code().is_none() {
        return Ok(Verdict::Crashed);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    let error = said.lines().find(|line| line.contains("error") || line.contains("fatal"));
    Ok(Verdict::Rejected(error.unwrap_or(&said).to_owned()))
}

/// Compares both verdicts on `text`.
pub(crate) fn compare(text: &str, verdict: &Verdict) -> Option<Difference> {
    let ours = retrograph_ptx::parse(text);
    let (kind, line) = match (ours, verdict) {
        (_, Verdict::Crashed) | (Ok(_), Verdict::Accepted) | (Err(_), Verdict::Rejected(_)) => {
            return None;
        }
        (Err(error), Verdict::Accepted) => {
            let said = format!("{} / {}", error.found, error.expected);
            (format!("we reject: {}", generalized(&said)), error.line as usize)
        }
        (Ok(_), Verdict::Rejected(said)) => {
            let line = said
                .split(", line ")
                .nth(1)
                .and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
            let message = said.split(" : ").nth(1).unwrap_or(said);
            (format!("ptxas rejects: {}", generalized(message)), line.unwrap_or(0))
        }
    };
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim().to_owned();
    Some(Difference { kind, line })
}

/// The message without the names of registers, labels and numbers.
fn generalized(message: &str) -> String {
    let mut text = String::new();
    let mut quoted = false;
    for c in message.chars() {
        match c {
            '`' | '\'' | '"' => {
                quoted = !quoted;
                text.push(c);
            }
            c if c.is_ascii_digit() && !quoted => text.push('#'),
            c => text.push(c),
        }
    }
    while text.contains("##") {
        text = text.replace("##", "#");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".version 7.0\n.target sm_80\n.entry k() { ret; }";

    #[test]
    fn only_differences_are_reported() {
        let rejected = Verdict::Rejected("x, line 3; error   : Too many 17".to_owned());
        assert!(compare(TEXT, &Verdict::Accepted).is_none());
        assert!(compare("", &rejected).is_none());
        assert!(compare("", &Verdict::Crashed).is_none());
        let difference = compare(TEXT, &rejected).unwrap();
        assert_eq!(difference.kind, "ptxas rejects: Too many #");
        assert_eq!(difference.line, ".entry k() { ret; }");
        assert!(compare("", &Verdict::Accepted).unwrap().kind.starts_with("we reject"));
    }
}
