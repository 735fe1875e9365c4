//! The sample text of a trained model: checked before the run, generated after it.

use retrograph_finetune::{Data, Error, Sampling, Tokenizer, TrainedModel};

use crate::args::OutputArguments;
use crate::error::CliError;
use crate::screen::{self, fact};

/// Tokens of the data that are the prompt if none is given.
const PROMPT_TOKENS: usize = 24;

/// A prompt and the parameters of its continuation.
pub(crate) struct Sample {
    prompt: Vec<u32>,
    tokens: usize,
    sampling: Sampling,
}

impl Sample {
    /// Returns the sample of the arguments, for a model of `vocab` tokens; `None` if none is
    /// requested.
    pub(crate) fn new(
        output: &OutputArguments,
        seed: u64,
        vocab: usize,
        data: &Data,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Self>, CliError> {
        let sampling = Sampling { temperature: output.temperature, seed, ..Sampling::greedy() };
        sampling.validate()?;
        let tokens = output.sample;
        let prompt = match &output.prompt {
            Some(prompt) => {
                let start = tokenizer.added_bos().into_iter();
                start.chain(tokenizer.encode(prompt)?).collect()
            }
            None => data.first(PROMPT_TOKENS),
        };
        // A prompt has at least one token.
        let prompt = if prompt.is_empty() { tokenizer.encode("\n")? } else { prompt };
        if let Some(index) = prompt.iter().position(|token| *token as usize >= vocab) {
            return Err(Error::TokenOutside { index, token: prompt[index], vocab }.into());
        }
        Ok((tokens > 0).then_some(Self { prompt, tokens, sampling }))
    }

    /// Generates and prints the sample.
    pub(crate) fn show(&self, model: &TrainedModel, tokenizer: &Tokenizer) -> Result<(), CliError> {
        let mut text = model.generate(&self.prompt, self.tokens, self.sampling)?;
        let end = text.iter().position(|token| Some(*token) == tokenizer.eos());
        text.truncate(end.unwrap_or(text.len()));
        fact("sample", "the prompt, then the generated text");
        let [prompt, text] = [&self.prompt, &text].map(|tokens| tokenizer.decode(tokens));
        screen::piece(&format!("{prompt}\u{2502}{text}\n"));
        Ok(())
    }
}
