//! Lines of preferences: a prompt, a chosen answer and a rejected one.
//!
//! All three are texts, or lists of messages. If `prompt` is missing or `chosen` repeats it, the
//! prompt is the common first messages of `chosen` and `rejected`.

use serde::Deserialize;
use serde_json::Value;

use super::Example;
use super::error::reason;
use crate::error::Result;
use crate::tokenizer::{ChatTemplate, Conversation, Tokenizer};

#[derive(Debug, Deserialize)]
struct Line {
    prompt: Option<Value>,
    chosen: Option<Value>,
    rejected: Option<Value>,
    tools: Option<Value>,
}

/// Encodes the chosen and the rejected example of a line. Compiles the template for the first line
/// with messages. The inner error is the reason why the line cannot be used; the outer error
/// concerns all lines.
pub(super) fn pair(
    line: &[u8],
    tokenizer: &Tokenizer,
    template: &mut Option<ChatTemplate>,
) -> Result<Result<[Example; 2], String>> {
    let Line { prompt, chosen, rejected, tools } = match serde_json::from_slice(line) {
        Ok(line) => line,
        Err(error) => return Ok(Err(reason(&error))),
    };
    let (Some(chosen), Some(rejected)) = (chosen, rejected) else {
        return Ok(Err("it has no `chosen` or no `rejected`".to_owned()));
    };
    let pair = match (prompt, chosen, rejected) {
        (Some(Value::String(prompt)), Value::String(chosen), Value::String(rejected)) => {
            let one = |answer: &str| Example::completion(&prompt, answer, tokenizer);
            one(&chosen).and_then(|chosen| Ok([chosen, one(&rejected)?]))
        }
        (prompt, Value::Array(chosen), Value::Array(rejected)) => {
            if template.is_none() {
                *template = Some(tokenizer.chat_template()?);
            }
            let Some(template) = template else { unreachable!("it is set above") };
            let (prompt, answers) = match messages(prompt, [chosen, rejected]) {
                Ok(found) => found,
                Err(reason) => return Ok(Err(reason)),
            };
            conversations(prompt, answers, tools, tokenizer, template)
        }
        _ => {
            let reason =
                "`prompt`, `chosen` and `rejected` must all be texts, or lists of messages";
            return Ok(Err(reason.to_owned()));
        }
    };
    Ok(pair.map_err(|error| error.to_string()).and_then(with_loss))
}

type Messages = Vec<Value>;

/// Returns the messages of the prompt, and of each answer without the prompt.
fn messages(
    prompt: Option<Value>,
    answers: [Messages; 2],
) -> Result<(Messages, [Messages; 2]), String> {
    let (prompt, answers) = match prompt {
        Some(Value::Array(prompt)) => (prompt, answers),
        // Some data sets are lists of messages, but repeat the text of the first as `prompt`.
        None | Some(Value::String(_)) => {
            let [chosen, rejected] = &answers;
            let same = chosen.iter().zip(rejected).take_while(|(one, other)| one == other).count();
            let prompt = chosen[..same].to_vec();
            (prompt, answers.map(|all| all[same..].to_vec()))
        }
        Some(_) => return Err("`prompt` must be a text or a list of messages".to_owned()),
    };
    match (prompt.is_empty(), answers.iter().any(Vec::is_empty)) {
        (true, _) => Err("`chosen` and `rejected` have no common prompt messages".to_owned()),
        (_, true) => Err("`chosen` or `rejected` has no message after the prompt".to_owned()),
        _ => Ok((prompt, answers)),
    }
}

fn conversations(
    prompt: Messages,
    answers: [Messages; 2],
    tools: Option<Value>,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
) -> Result<[Example; 2]> {
    let of = |messages: &[Value]| Conversation::of(messages).with_tools(tools.clone());
    let before = Example::conversation(&of(&prompt), template, tokenizer)?;
    let one = |answer: &[Value]| -> Result<Example> {
        let whole = of(&[prompt.as_slice(), answer].concat());
        let mut example = Example::conversation(&whole, template, tokenizer)?;
        let same = before.tokens().iter().zip(example.tokens());
        let prompt = same.take_while(|(one, other)| one == other).count();
        example.forget(prompt);
        Ok(example)
    };
    Ok([one(&answers[0])?, one(&answers[1])?])
}

fn with_loss(pair: [Example; 2]) -> Result<[Example; 2], String> {
    match pair.iter().all(Example::has_loss) {
        true => Ok(pair),
        false => Err("`chosen` or `rejected` has no assistant message".to_owned()),
    }
}
