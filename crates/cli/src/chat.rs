//! `retrograph chat`.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::sync::atomic::Ordering;

use retrograph_finetune::{Conversation, Error, HubError, Sampling, TextRequest};

use crate::args::ChatArguments;
use crate::engine::Engine;
use crate::error::CliError;
use crate::screen::{self, fact};
use crate::{Outcome, interrupt};

/// Maximum bytes of a line. No model has a context for this many.
const MAX_LINE_BYTES: u64 = 16 << 20;
const USER: &str = "user";
const ASSISTANT: &str = "assistant";
const SYSTEM: &str = "system";
const HELP: &str = "commands: /reset, /adapter on, /adapter off, /exit; //text sends /text";

/// A conversation with a model.
struct Chat<'a> {
    engine: Engine,
    arguments: &'a ChatArguments,
    sampling: Sampling,
    /// Roles and contents.
    messages: Vec<(&'static str, String)>,
    /// Whether answers use the adapter.
    adapted: bool,
}

/// A line from the user.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Message(String),
    Reset,
    Adapter(bool),
    Exit,
    Unknown(String),
    Empty,
}

impl Line {
    fn parse(text: &str) -> Self {
        let text = text.trim();
        match text.split_whitespace().collect::<Vec<_>>().as_slice() {
            [] => Self::Empty,
            ["/reset"] => Self::Reset,
            ["/adapter", "on"] => Self::Adapter(true),
            ["/adapter", "off"] => Self::Adapter(false),
            ["/exit" | "/quit"] => Self::Exit,
            [first, ..] if first.starts_with("//") => Self::Message(text[1..].to_owned()),
            [first, ..] if first.starts_with('/') => Self::Unknown((*first).to_owned()),
            _ => Self::Message(text.to_owned()),
        }
    }
}

/// Answers the lines of standard input until it ends.
pub(crate) fn run(arguments: &ChatArguments) -> Result<Outcome, CliError> {
    let adapters: Vec<_> = arguments.adapter.as_deref().into_iter().collect();
    let engine =
        Engine::open(&arguments.engine, &adapters, 1, arguments.quiet, |template, defaults| {
            template.ok_or(HubError::NoChatTemplate).map_err(Error::from)?;
            Ok(arguments.sampling.resolve(defaults).validate()?)
        })?;
    let sampling = arguments.sampling.resolve(&engine.defaults);
    let adapted = arguments.adapter.is_some();
    let mut chat = Chat { engine, arguments, sampling, messages: Vec::new(), adapted };
    chat.reset();
    if !arguments.quiet {
        fact("chat", HELP);
    }
    let mut input = std::io::stdin().lock();
    while let Some(line) = next_line(&mut input)? {
        if !screen::works() {
            break;
        }
        match Line::parse(&line) {
            Line::Empty => {}
            Line::Exit => break,
            Line::Reset => {
                chat.reset();
                chat.tell("a new conversation starts");
            }
            Line::Adapter(on) => chat.switch(on),
            Line::Unknown(command) => chat.tell(&format!("there is no command {command}; {HELP}")),
            Line::Message(text) => {
                if chat.answer(text)? == Outcome::Interrupted {
                    return Ok(Outcome::Interrupted);
                }
            }
        }
    }
    Ok(Outcome::Done)
}

/// Reads a line, after a prompt on a terminal; `None` at the end.
fn next_line(input: &mut impl BufRead) -> Result<Option<String>, CliError> {
    if std::io::stdin().is_terminal() {
        // Only answers go to standard output, so that they can be piped.
        let _ = write!(std::io::stderr(), "> ").and_then(|()| std::io::stderr().flush());
    }
    let mut bytes = Vec::new();
    let failed =
        |reason| CliError::Read { what: "a message", path: "standard input".into(), reason };
    let count = input.take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_LINE_BYTES {
        let reason = format!("it has more than {MAX_LINE_BYTES} bytes");
        return Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidData, reason)));
    }
    Ok((count > 0).then(|| String::from_utf8_lossy(&bytes).into_owned()))
}

impl Chat<'_> {
    /// Starts a new conversation.
    fn reset(&mut self) {
        let system = self.arguments.system.clone();
        self.messages = system.map(|text| (SYSTEM, text)).into_iter().collect();
    }

    fn switch(&mut self, on: bool) {
        if self.arguments.adapter.is_none() {
            return self.tell("there is no adapter; start with --adapter");
        }
        self.adapted = on;
        self.tell(if on { "answers with the adapter" } else { "answers without the adapter" });
    }

    /// Prints a notice; to standard error if only answers go to standard output.
    fn tell(&self, text: &str) {
        if self.arguments.quiet {
            // A closed standard error is ignored.
            let _ = writeln!(std::io::stderr(), "({text})");
        } else {
            screen::line(format_args!("({text})"));
        }
    }

    /// Answers a message and prints the answer as it arrives.
    fn answer(&mut self, text: String) -> Result<Outcome, CliError> {
        self.messages.push((USER, text));
        let messages = self.messages.iter().map(|(role, content)| (*role, content.as_str()));
        let conversation = Conversation::new(messages);
        let template = self.engine.template.as_ref().ok_or(HubError::NoChatTemplate);
        let template = template.map_err(Error::from)?;
        let tokenizer = &self.engine.tokenizer;
        let request = TextRequest::answer(tokenizer, template, &conversation, self.sampling)?;
        let (used, capacity) = (request.prompt.len(), self.engine.capacity());
        if used >= capacity {
            self.messages.pop();
            self.tell(&format!(
                "the conversation now has {used} tokens, and the context {capacity}; /reset \
                         starts a new one, --max-length sets the context"
            ));
            return Ok(Outcome::Done);
        }
        let ends = self.engine.ends.clone();
        let request = TextRequest { max_tokens: self.arguments.max_tokens, eos: &ends, ..request };
        let (generator, tokenizer) = self.engine.generator(self.adapted.then_some(0));
        let stop = interrupt::defer();
        let generated = generator.text(tokenizer, &request, &mut |piece| {
            screen::piece(piece) && !stop.load(Ordering::Relaxed)
        });
        screen::piece("\n");
        self.messages.push((ASSISTANT, generated?.text));
        Ok(if interrupt::forgive() { Outcome::Interrupted } else { Outcome::Done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_messages() {
        let message = |text: &str| Line::Message(text.to_owned());
        assert_eq!(Line::parse(" /reset \n"), Line::Reset);
        assert_eq!(Line::parse("/adapter  off"), Line::Adapter(false));
        assert_eq!(Line::parse("/adapter"), Line::Unknown("/adapter".to_owned()));
        assert_eq!(Line::parse("/exit"), Line::Exit);
        assert_eq!(Line::parse("\n"), Line::Empty);
        assert_eq!(Line::parse("what is 1/2?\r\n"), message("what is 1/2?"));
        assert_eq!(Line::parse("a  b"), message("a  b"));
        assert_eq!(Line::parse(" //reset  it\n"), message("/reset  it"));
        assert_eq!(Line::parse("///"), message("//"));
    }
}
