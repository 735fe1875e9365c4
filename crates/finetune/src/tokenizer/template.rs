//! A chat template: compiled once, rendered within limits.
//!
//! A template is untrusted input. Its length, the length of its expressions, and the steps, text
//! and values of a rendering have limits. Compiling and rendering run in a thread whose stack is
//! large enough for every template within these limits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use minijinja::machinery::{
    CodeGenerator, Instructions, Token, Tokenizer, Vm, WhitespaceConfig, make_string_output, parse,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};
use self_cell::self_cell;

use super::guard::caught;
use super::operators::refused;
use super::{meter, python, rewrite};
use crate::hub::HubError;

/// Maximum bytes of a template.
const BYTES: usize = 256 << 10;
/// Maximum tokens of an expression or tag.
const EXPRESSION: usize = 2_000;
/// Maximum `elif` branches of a template: the compiler nests them.
const BRANCHES: usize = 2_000;
/// Maximum bytes of a constant that the compiler folds.
const CONSTANT: f64 = 1e8;
/// Maximum steps of a rendering, and additional steps per message.
const STEPS: u64 = 5_000_000;
const STEPS_OF_MESSAGE: u64 = 5_000;
/// Maximum time of a rendering, for cases that the other limits miss.
const TIME: Duration = Duration::from_secs(60);
/// Maximum length of an error of the template in characters.
const REASON_CHARACTERS: usize = 1_000;
/// Stack size in bytes.
const STACK: usize = 128 << 20;

const WHITESPACE: WhitespaceConfig =
    WhitespaceConfig { keep_trailing_newline: false, lstrip_blocks: true, trim_blocks: true };

/// The name of the template in messages of `minijinja`.
const NAME: &str = "chat_template";

struct Code<'a> {
    instructions: Instructions<'a>,
    blocks: BTreeMap<&'a str, Instructions<'a>>,
}

self_cell!(
    struct Compiled {
        owner: String,
        #[covariant]
        dependent: Code,
    }
);

/// A compiled template.
#[derive(Clone)]
pub(super) struct Template {
    path: PathBuf,
    compiled: Arc<Compiled>,
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Template").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Template {
    /// Compiles `text`, the template of the file `path`.
    pub(super) fn compile(path: &Path, text: &str) -> Result<Self, HubError> {
        let beyond = |limit: &str| HubError::TemplateLimit {
            path: path.to_owned(),
            limit: limit.to_owned(),
        };
        if text.len() > BYTES {
            return Err(beyond("it has more than 256 KiB"));
        }
        // A template ends without its last newline.
        let text = python::without_generation_tags(text);
        let compiled = in_thread(move || Compiled::try_new(text, |text| code(text)));
        let compiled = compiled.ok_or_else(|| beyond("compiling it takes too long"))?;
        let compiled = compiled.map_err(|panic| HubError::json(path, failed(&panic)))?;
        let compiled = compiled.map_err(|error| HubError::json(path, reason(&error)))?;
        Ok(Self { path: path.to_owned(), compiled: Arc::new(compiled) })
    }

    /// Renders `values`, a conversation of `messages` messages.
    pub(super) fn render(&self, values: Value, messages: usize) -> Result<String, HubError> {
        let compiled = self.compiled.clone();
        let fuel = STEPS + STEPS_OF_MESSAGE * messages as u64;
        let rendered = in_thread(move || {
            meter::start(meter::size(&values));
            let outcome = rendered(compiled.borrow_dependent(), values, fuel);
            (outcome.map_err(|error| (reason(&error), error.kind())), meter::exceeded())
        });
        let path = self.path.clone();
        let beyond = |limit: &str| HubError::TemplateLimit { path, limit: limit.to_owned() };
        match rendered {
            None => Err(beyond("rendering takes too long")),
            Some(Err(panic)) => Err(HubError::Chat { reason: failed(&panic) }),
            Some(Ok((_, Some(limit)))) => Err(beyond(limit)),
            Some(Ok((Err((_, ErrorKind::OutOfFuel)), _))) => Err(beyond("it takes too many steps")),
            Some(Ok((Err((reason, _)), _))) => Err(HubError::Chat { reason }),
            Some(Ok((Ok(text), _))) => Ok(text),
        }
    }
}

fn rendered(code: &Code<'_>, values: Value, fuel: u64) -> Result<String, Error> {
    let mut environment: Environment<'_> = python::environment();
    environment.set_fuel(Some(fuel));
    let mut text = String::new();
    let mut output = make_string_output(&mut text);
    let vm = Vm::new(&environment);
    vm.eval(&code.instructions, values, &code.blocks, &mut output, AutoEscape::None)?;
    Ok(text)
}

fn code(text: &str) -> Result<Code<'_>, Error> {
    require_small_expressions(text)?;
    let statements = parse(text, NAME, SyntaxConfig, WHITESPACE)?;
    let mut generator = CodeGenerator::new(NAME, text);
    generator.compile_stmt(&statements);
    let (instructions, blocks) = generator.finish();
    let metered = |instructions| rewrite::metered(NAME, text, instructions);
    let blocks = blocks.iter().map(|(name, block)| (*name, metered(block))).collect();
    Ok(Code { instructions: metered(&instructions), blocks })
}

/// Checks the sizes for which the parser and the compiler have no limit: recursion and constants.
fn require_small_expressions(text: &str) -> Result<(), Error> {
    let mut tokenizer = Tokenizer::new(text, NAME, false, SyntaxConfig, WHITESPACE);
    let mut branches = 0;
    let mut inside = Inside::default();
    while let Some((token, span)) = tokenizer.next_token()? {
        match token {
            Token::VariableStart | Token::BlockStart => {
                inside = Inside { start: span.start_offset, ..Inside::default() };
            }
            Token::Ident("elif") => branches += 1,
            Token::Mul => inside.multiplies = true,
            Token::Pow => inside.raises = true,
            Token::Int(value) => inside.number(value as f64),
            Token::Int128(_) => inside.number(f64::INFINITY),
            Token::Float(value) => inside.number(value.max(1.0 / value)),
            _ => (),
        }
        inside.tokens += 1;
        if inside.tokens > EXPRESSION {
            return Err(refused(format!("an expression has more than {EXPRESSION} parts")));
        }
        if inside.constant(span.end_offset) > CONSTANT {
            return Err(refused("an expression multiplies large constants"));
        }
        if branches > BRANCHES {
            return Err(refused(format!("it has more than {BRANCHES} `elif` branches")));
        }
    }
    Ok(())
}

/// A bound on the constants of an expression.
struct Inside {
    start: u32,
    tokens: usize,
    multiplies: bool,
    raises: bool,
    /// Upper bound of all sums and products of its numbers.
    numbers: f64,
}

impl Default for Inside {
    fn default() -> Self {
        Self { start: 0, tokens: 0, multiplies: false, raises: false, numbers: 1.0 }
    }
}

impl Inside {
    fn number(&mut self, number: f64) {
        self.numbers *= 1.0 + number.abs();
    }

    /// Returns an upper bound of the bytes of its constants.
    fn constant(&self, end: u32) -> f64 {
        match (self.multiplies, self.raises) {
            (false, _) => 0.0,
            (true, true) => f64::INFINITY,
            (true, false) => self.numbers * f64::from(end.saturating_sub(self.start)),
        }
    }
}

/// Runs `work` in a thread with a large stack. Returns its result or the message of its panic, or
/// `None` after [`TIME`]; the thread then continues in the background.
fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<Result<T, String>> {
    let (sender, receiver) = mpsc::channel();
    let send = move || drop(sender.send(caught(work)));
    let thread = std::thread::Builder::new().name(NAME.to_owned()).stack_size(STACK);
    let thread = thread.spawn(send).ok()?;
    let result = receiver.recv_timeout(TIME).ok()?;
    // Dropping the handle of a thread that is about to end can crash: `pthread_detach` of glibc
    // 2.36 may read the freed descriptor of the thread.
    thread.join().ok()?;
    Some(result)
}

/// Returns the error for a panic of `minijinja`.
fn failed(panic: &str) -> String {
    let panic: String = panic.chars().take(REASON_CHARACTERS).collect();
    format!("the template engine failed: {panic}")
}

/// Returns the error with the line of the template, truncated: templates choose their messages.
fn reason(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    let what: String = what.chars().take(REASON_CHARACTERS).collect();
    match error.line() {
        Some(line) => format!("{what} (line {line} of the template)"),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_engine_is_an_error() {
        let panic = in_thread::<()>(|| panic!("index {} is too large", 7));
        let reason = failed(&panic.unwrap().unwrap_err());
        assert_eq!(reason, "the template engine failed: index 7 is too large");
        assert_eq!(in_thread(|| 3), Some(Ok(3)));
    }
}
