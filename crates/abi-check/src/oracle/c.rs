//! cuda.h and nccl.h by a C compiler: a program that prints sizes, offsets and values, and whether
//! functions have the types that the crates declare.
//!
//! Each statement is on its own line. A statement that does not compile means that the header lacks
//! the item; the rest is compiled again without it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use super::include::Include;
use crate::facts::{self, Facts};
use crate::flat::Pair;
use crate::model::{Function, Kind, Type};

/// A failure of the C compiler.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompilerError {
    /// Files or processes failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The attempted action.
        what: &'static str,
        /// The error.
        source: std::io::Error,
    },
    /// An error of the compiler outside the statements.
    #[error("cc failed:\n{messages}")]
    Failed {
        /// The messages.
        messages: String,
    },
}

/// An item and the statement that prints its value.
struct Question {
    item: String,
    statement: String,
}

/// Asks the compiler about everything that driver-sys declares.
pub fn facts(include: &Include, pair: &Pair<'_>) -> Result<Facts, CompilerError> {
    let compiler = Compiler { include, undefine: pair.ours.functions.keys().cloned().collect() };
    let (mut answers, unanswered) = compiler.ask(questions(pair), false)?;
    // The header declares earlier versions with the macro of the library itself.
    let again = unanswered.into_iter().map(|(question, _)| question).collect();
    let (more, missing) = compiler.ask(again, true)?;
    answers.extend(more);
    for (question, message) in missing {
        answers.insert(question.item, format!("nothing: {message}"));
    }
    Ok(answers.into_iter().map(|(item, answer)| translate(pair, item, answer)).collect())
}

/// Converts an answer of the program: yes or no about a signature, otherwise a number.
fn translate(pair: &Pair<'_>, item: String, answer: String) -> (String, String) {
    let Some(function) = item.strip_prefix("signature of ") else { return (item, answer) };
    let answer = match (&*answer, pair.ours.functions.get(function)) {
        ("1", Some(ours)) => ours.map(|of| pair.resolve(of)).to_string(),
        ("0", _) => "another signature".to_owned(),
        _ => answer,
    };
    (item, answer)
}

fn questions(pair: &Pair<'_>) -> Vec<Question> {
    let mut list = Vec::new();
    let mut ask = |item: String, expression: String| {
        let statement = format!("P(\"{item}\", {expression});");
        list.push(Question { item, statement });
    };
    let mut used = Vec::new();
    for (name, definition) in pair.ours.types.iter().filter(|(name, _)| pair.names(name)) {
        ask(format!("size of {name}"), format!("sizeof({name})"));
        ask(format!("alignment of {name}"), format!("_Alignof({name})"));
        if matches!(definition.kind, Kind::Struct | Kind::Union) {
            for place in facts::places(pair, name, definition, &mut used) {
                let path = place.path;
                ask(format!("offset of {name}.{path}"), format!("offsetof({name}, {path})"));
            }
        }
    }
    for name in pair.ours.constants.keys() {
        ask(format!("value of {name}"), name.clone());
    }
    for (name, function) in &pair.ours.functions {
        let alternatives: Vec<String> = spellings(&function.map(|of| pair.plain(of)))
            .into_iter()
            .map(|spelling| format!("_Generic(&{name}, {spelling}: 1, default: 0)"))
            .collect();
        ask(format!("signature of {name}"), alternatives.join(" || "));
    }
    list
}

/// The C pointer types of a function: the header spells 64-bit integers as `long` or `long long`.
fn spellings(function: &Function) -> Vec<String> {
    let (mut lists, result) = (vec![Vec::new()], spell(&function.result));
    for argument in &function.arguments {
        let mut longer = Vec::new();
        for list in &lists {
            for spelling in spell(argument) {
                longer.push(list.iter().cloned().chain([spelling]).collect());
            }
        }
        lists = longer;
    }
    let pointer = |list: &Vec<String>| match list.is_empty() {
        true => format!("{} (*)(void)", result[0]),
        false => format!("{} (*)({})", result[0], list.join(", ")),
    };
    lists.iter().map(pointer).collect()
}

fn spell(of: &Type) -> Vec<String> {
    let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
    match of {
        Type::Void => words(&["void"]),
        Type::Char => words(&["char"]),
        Type::Size => words(&["size_t"]),
        Type::Integer { bytes: 8, signed: true } => words(&["long long", "long"]),
        Type::Integer { bytes: 8, signed: false } => {
            words(&["unsigned long long", "unsigned long"])
        }
        Type::Integer { bytes, signed } => {
            let word = [(1, "char"), (2, "short")].iter().find(|(size, _)| size == bytes);
            let word = word.map_or("int", |(_, word)| word);
            vec![format!("{} {word}", if *signed { "signed" } else { "unsigned" })]
        }
        Type::Float(bytes) => words(&[if *bytes == 4 { "float" } else { "double" }]),
        Type::Named(name) => vec![name.clone()],
        Type::Pointer { constant, to } => {
            let star = if *constant { " const *" } else { " *" };
            spell(to).into_iter().map(|inner| inner + star).collect()
        }
        Type::Array { length, of } => {
            spell(of).into_iter().map(|of| format!("__typeof__({of} [{length}])")).collect()
        }
        Type::Function { arguments, result } => {
            let (arguments, result) = (arguments.clone(), (**result).clone());
            let pointers = spellings(&Function { arguments, result, since: None });
            pointers.into_iter().map(|pointer| format!("__typeof__({pointer})")).collect()
        }
    }
}

struct Compiler<'a> {
    include: &'a Include,
    /// Macros to undefine, which redirect a name to another symbol.
    undefine: Vec<String>,
}

type Answers = BTreeMap<String, String>;

impl Compiler<'_> {
    /// The answers, and the questions that do not compile with the reason.
    fn ask(
        &self,
        mut questions: Vec<Question>,
        internal: bool,
    ) -> Result<(Answers, Vec<(Question, String)>), CompilerError> {
        let folder = tempfile::tempdir().map_err(io("make a temporary folder"))?;
        let mut missing = Vec::new();
        loop {
            let errors = self.compile(folder.path(), &questions, internal)?;
            if errors.is_empty() {
                break;
            }
            let mut kept = Vec::new();
            for (index, question) in questions.into_iter().enumerate() {
                match errors.get(&index) {
                    Some(message) => missing.push((question, message.clone())),
                    None => kept.push(question),
                }
            }
            questions = kept;
        }
        let output = Command::new(folder.path().join("check"));
        Ok((run(output)?, missing))
    }

    /// The first error of each statement, by index.
    fn compile(
        &self,
        folder: &Path,
        questions: &[Question],
        internal: bool,
    ) -> Result<BTreeMap<usize, String>, CompilerError> {
        let include = format!("#include <{}>", self.include.header);
        let mut head = vec![include.as_str(), "#include <stdio.h>", "#include <stddef.h>"];
        let undefine: Vec<String> = self.undefine.iter().map(|n| format!("#undef {n}")).collect();
        head.extend(undefine.iter().map(String::as_str));
        head.push("#define P(item, value) printf(\"%s\\t%lld\\n\", item, (long long)(value))");
        head.push("int main(void) {");
        let statements = questions.iter().map(|question| question.statement.as_str());
        let lines: Vec<&str> = head.iter().copied().chain(statements).chain(["}", ""]).collect();
        let (source, program) = (folder.join("check.c"), folder.join("check"));
        std::fs::write(&source, lines.join("\n")).map_err(io("write a C program"))?;
        let mut command = Command::new("cc");
        command.args(["-std=gnu11", "-w"]).args(self.include.arguments()).env("LC_ALL", "C");
        if internal {
            command.arg("-D__CUDA_API_VERSION_INTERNAL");
        }
        let output = command.arg(&source).arg("-o").arg(program).output();
        let output = output.map_err(io("run cc"))?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        let errors = complaints(&messages, head.len());
        // Functions are only named in unevaluated contexts, so no library is linked.
        match output.status.success() || !errors.is_empty() {
            true => Ok(errors),
            false => Err(CompilerError::Failed { messages }),
        }
    }
}

/// Reads lines such as `check.c:12:5: error: …`.
fn complaints(messages: &str, head: usize) -> BTreeMap<usize, String> {
    let mut errors = BTreeMap::new();
    for line in messages.lines() {
        let Some((place, message)) = line.split_once(" error: ") else { continue };
        let number = place.split("check.c:").nth(1).and_then(|rest| rest.split(':').next());
        let Some(number) = number.and_then(|number| number.parse::<usize>().ok()) else { continue };
        if let Some(index) = number.checked_sub(head + 1) {
            errors.entry(index).or_insert_with(|| message.to_owned());
        }
    }
    errors
}

fn run(mut program: Command) -> Result<Answers, CompilerError> {
    let output = program.output().map_err(io("run the C program"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let answers = text.lines().filter_map(|line| line.split_once('\t'));
    Ok(answers.map(|(item, value)| (item.to_owned(), value.to_owned())).collect())
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> CompilerError {
    move |source| CompilerError::Io { what, source }
}
