//! Examples from JSON lines: which tokens have loss, their layout, and errors of unusable lines.

use std::fs;
use std::path::PathBuf;

use retrograph_finetune::data::{
    Example, Examples, IGNORED_TARGET, JsonlLimits, Layout, Lengths, Tally, TextData, read_jsonl,
};
use retrograph_finetune::{Data, DataError, DataFile, Error, SplitOptions, Tokenizer};
use retrograph_test_support::with;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::conversations::conversation;
use crate::small_tokenizer::{LLAMA3, chatml, tokenizer, write};

pub(crate) const CHATML: [&str; 3] = ["<|im_start|>", "<|im_end|>", "<|pad|>"];

/// A folder with a tokenizer and a file of data.
pub(crate) struct Place(pub(crate) TempDir);

impl Place {
    pub(crate) fn new(special: &[&str], settings: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &tokenizer(special), settings);
        Self(folder)
    }

    pub(crate) fn chatml() -> Self {
        Self::new(&CHATML, &chatml())
    }

    pub(crate) fn tokenizer(&self) -> Tokenizer {
        Tokenizer::open(self.0.path()).unwrap()
    }

    fn file(&self, text: &str) -> PathBuf {
        let path = self.0.path().join("data.jsonl");
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, lines: &[Value]) -> Result<Vec<Example>, Error> {
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        let path = self.file(&lines.join("\n"));
        read_jsonl(&path, &self.tokenizer(), &mut |_, _| ()).map(|(examples, _)| examples)
    }

    /// The text of an example, with brackets around the tokens that have a loss.
    pub(crate) fn marked(&self, line: Value) -> String {
        self.shown(&self.read(&[line]).unwrap().remove(0))
    }

    /// The text of an example, with brackets around the tokens that have a loss.
    pub(crate) fn shown(&self, example: &Example) -> String {
        let tokenizer = self.tokenizer();
        let (mut text, mut inside) = (String::new(), false);
        for (&token, &has_loss) in example.tokens().iter().zip(example.loss_mask()) {
            if has_loss != inside {
                text.push(if has_loss { '[' } else { ']' });
                inside = has_loss;
            }
            text.push_str(&written(&tokenizer, token));
        }
        text + if inside { "]" } else { "" }
    }
}

fn written(tokenizer: &Tokenizer, token: u32) -> String {
    let special = CHATML.iter().chain(&LLAMA3);
    let special = special.copied().find(|text| tokenizer.token_to_id(text) == Some(token));
    special.map_or_else(|| tokenizer.decode(&[token]), str::to_owned)
}

#[test]
fn every_token_of_a_text_except_the_first_has_loss() {
    let place = Place::chatml();
    assert_eq!(place.marked(json!({ "text": "the cat" })), "the[ cat<|im_end|>]");
    assert_eq!(place.marked(json!({ "text": "xy<|im_end|>" })), "x[y<|im_end|>]");
    let started = json!({ "bos_token": "<|begin_of_text|>", "add_bos_token": true });
    let place = Place::new(&LLAMA3, &started);
    assert_eq!(place.marked(json!({ "text": "the" })), "<|begin_of_text|>[the]");
}

#[test]
fn only_the_completion_and_the_end_token_have_loss() {
    let place = Place::chatml();
    let line = json!({ "prompt": "a: the", "completion": " cat", "id": 7 });
    assert_eq!(place.marked(line), "a: the[ cat<|im_end|>]");
    // Together these would be the token `the`, which is not a continuation of the prompt's tokens.
    let line = json!({ "prompt": "xth", "completion": "e" });
    assert_eq!(place.marked(line.clone()), "xth[e<|im_end|>]");
    let tokens = place.read(&[line]).unwrap().remove(0).tokens().to_vec();
    let expected = ["x", "th", "e", "<|im_end|>"].map(|token| place.tokenizer().token_to_id(token));
    assert_eq!(tokens.into_iter().map(Some).collect::<Vec<_>>(), expected);
}

#[test]
fn lines_of_share_gpt_and_alpaca_are_conversations() {
    let place = Place::chatml();
    let messages = json!({ "messages": [
        { "role": "system", "content": "the" },
        { "role": "user", "content": "a" }, { "role": "assistant", "content": "cat" },
        { "role": "user", "content": "b" }, { "role": "assistant", "content": "x" },
    ] });
    let expected = place.marked(messages);
    assert!(expected.contains("[cat<|im_end|>]"), "{expected}");
    let share_gpt = json!({ "id": 3, "conversations": [
        { "from": "system", "value": "the" },
        { "from": "human", "value": "a" }, { "from": "gpt", "value": "cat" },
        { "from": "human", "value": "b" }, { "from": "gpt", "value": "x" },
    ] });
    assert_eq!(place.marked(share_gpt), expected);
    let apart = json!({ "system": "the", "conversations": [
        { "from": "user", "value": "a" }, { "from": "assistant", "value": "cat" },
        { "from": "user", "value": "b" }, { "from": "assistant", "value": "x" },
    ] });
    assert_eq!(place.marked(apart), expected);
    let alpaca = json!({
        "system": "the", "history": [["a", "cat"]], "instruction": "b", "input": "", "output": "x",
    });
    assert_eq!(place.marked(alpaca), expected);
    let input = json!({ "instruction": "a", "input": "b", "output": "x" });
    let same = json!({ "messages": [
        { "role": "user", "content": "a\nb" }, { "role": "assistant", "content": "x" },
    ] });
    assert_eq!(place.marked(input), place.marked(same));

    let kept = json!({ "instruction": "a", "output": "b", "text": "c" });
    assert_eq!(place.marked(kept), place.marked(json!({ "text": "c" })));
    for (line, reason) in [
        (json!({ "conversations": [] }), "`conversations` is empty"),
        (json!({ "conversations": [{ "from": "human" }] }), "message 1 has no `value`"),
        (
            json!({ "conversations": [{ "from": "bird", "value": "" }] }),
            "message 1 is from `bird`, which is not one of human,",
        ),
        (json!({ "instruction": "a" }), "an `instruction` without an `output`"),
    ] {
        let error = place.read(&[line]).unwrap_err().to_string();
        assert!(error.contains(reason), "`{reason}` is not in: {error}");
    }
}

#[test]
fn alpaca_without_a_chat_template_is_a_prompt_and_its_completion() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.jsonl");
    fs::write(&path, r#"{ "instruction": "add", "input": "1 2", "output": "3" }"#).unwrap();
    let (examples, forms) = read_jsonl(&path, &Tokenizer::bytes(), &mut |_, _| ()).unwrap();
    let text: Vec<u8> = examples[0].tokens().iter().map(|token| *token as u8).collect();
    let prompt = "### Instruction:\nadd\n1 2\n\n### Response:\n";
    assert_eq!(String::from_utf8(text).unwrap(), format!("{prompt}3"));
    assert_eq!(examples[0].loss_mask().iter().filter(|has_loss| **has_loss).count(), 1);
    assert_eq!(forms.completions, 1);
}

#[test]
fn bytes_are_marked_in_the_same_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.jsonl");
    fs::write(&path, r#"{ "prompt": "ab", "completion": "c" }"#).unwrap();
    let (examples, forms) = read_jsonl(&path, &Tokenizer::bytes(), &mut |_, _| ()).unwrap();
    assert_eq!(
        (examples[0].tokens(), examples[0].loss_mask()),
        (&[97, 98, 99][..], &[false, false, true][..])
    );
    assert_eq!((forms.texts, forms.completions, forms.conversations), (0, 1, 0));
}

#[test]
fn every_malformed_line_is_named_with_its_reason() {
    let place = Place::chatml();
    let refusing = "{{ raise_exception('roles must alternate') }}";
    fs::write(place.0.path().join("chat_template.jinja"), refusing).unwrap();
    let lines = [
        r#"{ "text": "good" }"#,
        "",
        r#"{ "text": "cut"#,
        r#"{ "text": 5 }"#,
        r#"{ "prompt": "x" }"#,
        r#"{ "completion": "x" }"#,
        r#"{ "id": 1 }"#,
        r#"{ "text": "x", "messages": [] }"#,
        r#"{ "messages": [] }"#,
        r#"{ "messages": [{ "content": "x" }] }"#,
        r#"{ "messages": [{ "role": "user", "content": "x" }] }"#,
        r#"["text"]"#,
        r#"{ "text": null, "prompt": "a", "completion": "b" }"#,
    ];
    let path = place.file(&lines.join("\r\n"));
    let error = read_jsonl(&path, &place.tokenizer(), &mut |_, _| ()).unwrap_err();
    let text = error.to_string();
    let Error::Data(DataError::Malformed { lines, malformed, count, .. }) = error else {
        panic!("{text}")
    };
    assert_eq!((lines, count), (12, 10));
    let numbers: Vec<usize> = malformed.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    for words in [
        "10 of 12 lines",
        "line 3: EOF while parsing a string at column",
        "line 4: invalid type: integer `5`, expected a string",
        "line 5: it has a `prompt` without a `completion`",
        "line 6: it has a `completion` without a `prompt`",
        "line 7: it has none of",
        "line 8: it has `text` and `messages`",
        "line 9: `messages` is empty",
        "line 10: message 1 has no `role`",
        "line 11: the chat template fails on the messages: roles must alternate",
        "line 12: it is not an object",
        "object with `text`, with `prompt` and `completion`",
    ] {
        assert!(text.contains(words), "`{words}` is not in: {text}");
    }
    let many = place.file(&"x\n".repeat(33));
    let text = read_jsonl(&many, &place.tokenizer(), &mut |_, _| ()).unwrap_err().to_string();
    assert!(text.contains("line 20:") && text.contains("and 13 more"), "{text}");
    assert!(!text.contains("line 21:"), "{text}");
}

#[test]
fn missing_data_and_a_missing_template_are_named() {
    let place = Place::chatml();
    let error = read_jsonl(&place.0.path().join("x"), &place.tokenizer(), &mut |_, _| ());
    assert!(matches!(error, Err(Error::Data(DataError::Read { .. }))));
    for nothing in ["", "\n \r\n"] {
        let error = read_jsonl(&place.file(nothing), &place.tokenizer(), &mut |_, _| ());
        assert!(matches!(error, Err(Error::Data(DataError::Empty { .. }))));
    }
    let path = place.file(&conversation().to_string());
    let error = read_jsonl(&path, &Tokenizer::bytes(), &mut |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("chat_template.jinja"), "{error}");
}

fn laid_out(lines: &[Value], seq: usize, packing: bool) -> Result<Examples, DataError> {
    let place = Place::chatml();
    let layout = Layout { lengths: Lengths::new(seq, 1), packing, pad: place.tokenizer().pad() };
    Examples::new(place.read(lines).unwrap(), layout)
}

#[test]
fn each_example_is_one_padded_or_truncated_sequence() {
    let lines = [
        json!({ "prompt": "ab", "completion": "cd" }),
        json!({ "prompt": "abcdefgh", "completion": "i" }),
        json!({ "prompt": "", "completion": "xyzxyzxyz" }),
        json!({ "text": "" }),
    ];
    let examples = laid_out(&lines, 6, false).unwrap();
    let (pad, end) =
        (Place::chatml().tokenizer().pad(), Place::chatml().tokenizer().eos().unwrap());
    let batch = examples.in_order([3, 6], 0).unwrap().unwrap();
    let letter =
        |letter: char| Place::chatml().tokenizer().token_to_id(&letter.to_string()).unwrap();
    let [a, b, c, d, x, y, z] = ['a', 'b', 'c', 'd', 'x', 'y', 'z'].map(letter);
    let no = IGNORED_TARGET;
    assert_eq!(
        batch.tokens,
        [a, b, c, d, pad, pad, x, y, z, x, y, z, pad, pad, pad, pad, pad, pad]
    );
    let targets = [no, c, d, end, no, no, y, z, x, y, z, x, no, no, no, no, no, no];
    assert_eq!((batch.targets.as_slice(), batch.counted()), (&targets[..], 9));
    assert_eq!(examples.in_order([3, 6], 1).unwrap(), None);
    let expected = Tally {
        examples: 4,
        truncated: 2,
        split: 0,
        dropped: 2,
        sequences: 2,
        tokens: 10,
        loss_tokens: 9,
        packed: false,
    };
    assert_eq!(*examples.tally(), expected);
    assert!(matches!(examples.in_order([1, 7], 0), Err(Error::Data(DataError::OtherSeq { .. }))));
    let error = laid_out(&lines[1..2], 6, false).unwrap_err();
    assert!(matches!(error, DataError::NoTokensWithLoss { examples: 1, seq: 6, .. }), "{error}");
}

#[test]
fn packed_examples_share_sequences_and_start_at_position_0() {
    let lines = [
        json!({ "text": "abc" }),
        json!({ "text": "d" }),
        json!({ "text": "xyzxyzxyz" }),
        json!({ "prompt": "ef", "completion": "ghij" }),
        json!({ "prompt": "too long", "completion": "k" }),
    ];
    let examples = laid_out(&lines, 4, true).unwrap();
    let tokenizer = Place::chatml().tokenizer();
    let batch = examples.in_order([6, 4], 0).unwrap().unwrap();
    let shown = |numbers: &[u32]| -> String {
        let shown = |&token: &u32| match token {
            IGNORED_TARGET => "_".to_owned(),
            token => written(&tokenizer, token).replace("<|im_end|>", "$").replace("<|pad|>", "."),
        };
        numbers.iter().map(shown).collect()
    };
    // The last token of an example is only predicted. A long text continues; a completion does not.
    assert_eq!(shown(&batch.tokens), "xyzxyzxyefghabcdz.......");
    assert_eq!(shown(&batch.targets), "yzxyzxyz_ghibc$$$_______");
    let positions = [
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
        [0, 1, 2, 0],
        // Padding is documents of a token.
        [0, 0, 0, 0],
        [0, 0, 0, 0],
    ];
    assert_eq!(batch.positions, Some(positions.concat()));
    let expected = Tally {
        examples: 5,
        truncated: 2,
        split: 1,
        dropped: 1,
        sequences: 5,
        tokens: 17,
        loss_tokens: 16,
        packed: true,
    };
    assert_eq!(*examples.tally(), expected);
}

#[test]
fn examples_are_packed_unless_disabled_or_sequences_have_several_lengths() {
    let place = Place::chatml();
    let path = place.file(&json!({ "prompt": "a", "completion": "b" }).to_string());
    let packed = |count, packing| {
        let lengths = Lengths::new(8, count);
        let mut options = SplitOptions::new(lengths);
        options.packing = packing;
        let split =
            options.jsonl(DataFile::new(&path, &place.tokenizer()), &mut |_, _| ()).unwrap();
        split.training.is_packed()
    };
    assert!(packed(1, None) && !packed(4, None));
    assert!(packed(4, Some(true)) && !packed(1, Some(false)));
}

#[test]
fn the_same_sequences_packed_and_padded_are_different_data() {
    let lines = [json!({ "text": "abc" }), json!({ "text": "xyz" })];
    let [packed, padded] = [true, false].map(|packing| laid_out(&lines, 3, packing).unwrap());
    assert_eq!(packed.in_order([2, 3], 0).unwrap().unwrap().tokens.len(), 6);
    assert_ne!(packed.fingerprint(), padded.fingerprint());
}

#[test]
fn an_epoch_has_every_sequence_once_in_its_own_order() {
    let lines: Vec<Value> = (0..10).map(|i| json!({ "text": format!("{i}x") })).collect();
    let examples = laid_out(&lines, 4, false).unwrap();
    let first = |step: u32| -> Vec<u32> {
        let batch = examples.batch([3, 4], 5, step).unwrap();
        batch.tokens.chunks(4).map(|row| row[0]).collect()
    };
    let steps: Vec<Vec<u32>> = (0..20).map(first).collect();
    let seen = steps.concat();
    let mut epochs: Vec<Vec<u32>> = seen.chunks(10).map(<[u32]>::to_vec).collect();
    assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
    epochs.iter_mut().for_each(|epoch| epoch.sort_unstable());
    assert!(epochs.iter().all(|epoch| *epoch == epochs[0]));
    // The order of the requests does not change a step.
    for step in [7, 19, 0, 3] {
        assert_eq!(first(step), steps[step as usize]);
    }
    assert_ne!(examples.batch([3, 4], 6, 0).unwrap(), examples.batch([3, 4], 5, 0).unwrap());
}

#[test]
fn held_out_examples_depend_on_the_seed_and_are_not_trained_on() {
    let place = Place::chatml();
    let lines: Vec<String> = (0..40)
        .map(|i| json!({ "prompt": "", "completion": format!("{i:02}") }).to_string())
        .collect();
    let path = place.file(&lines.join("\n"));
    let split = |holdout: f64, seed: u64| {
        let options = with(SplitOptions::new(Lengths::new(4, 1)), |it| {
            it.packing = Some(false);
            it.holdout = holdout;
            it.seed = seed;
        });
        options.jsonl(DataFile::new(&path, &place.tokenizer()), &mut |_, _| ())
    };
    let texts = |data: &Data| -> Vec<String> {
        let batches = (0..).map_while(|index| data.in_order([1, 4], index).unwrap());
        batches.map(|batch| place.tokenizer().decode(&batch.tokens)).collect()
    };
    let parts = |seed| {
        let split = split(0.1, seed).unwrap();
        (texts(&split.training), texts(&split.held_out.unwrap()))
    };
    let (training, held_out) = parts(1);
    assert_eq!((training.len(), held_out.len()), (36, 4));
    assert!(held_out.iter().all(|text| !training.contains(text)));
    assert_eq!(parts(1), (training, held_out.clone()));
    assert_ne!(parts(2).1, held_out);
    let whole = split(0.0, 1).unwrap();
    assert!(whole.held_out.is_none());
    assert_ne!(whole.training.fingerprint(), split(0.1, 1).unwrap().training.fingerprint());
    for fraction in [-0.1, 1.0, 0.999, f64::NAN] {
        let error = split(fraction, 1).unwrap_err().to_string();
        assert!(error.contains("holding out"), "{error}");
    }
}

#[test]
fn errors_of_a_text_name_its_file() {
    let place = Place::chatml();
    let read = |bytes: &[u8], holdout| {
        let path = place.0.path().join("named");
        fs::write(&path, bytes).unwrap();
        let lengths = Lengths::new(4, 1);
        let mut options = SplitOptions::new(lengths);
        options.holdout = holdout;
        options.text(DataFile::new(&path, &place.tokenizer()), &mut |_, _| ())
    };
    let text = |bytes: &[u8]| read(bytes, 0.0).unwrap().training;
    for (error, words) in [
        (read(b"ab\xff", 0.0).unwrap_err(), "byte 2, counted from 0, is not UTF-8"),
        (read(b"a", 0.5).unwrap_err(), "tokens of"),
        (text(b"").in_order([1, 4], 0).unwrap_err(), "use a longer text"),
        (text(b"a").batch([1, 4], 0, 0).unwrap_err(), "use a longer text"),
        (text(b"the cat").require_vocab(1).unwrap_err(), "of the text"),
    ] {
        let error = error.to_string();
        assert!(error.contains(words) && error.contains("named`"), "{words}: {error}");
        assert!(!error.contains("shorter sequences"), "{error}");
    }
    let error = text(b"the cat the cat").batch([1, 99], 0, 0).unwrap_err().to_string();
    assert!(error.contains("longer text or shorter sequences"), "{error}");
}

#[test]
fn the_end_of_a_text_is_held_out() {
    let place = Place::chatml();
    let path = place.file(&"the cat ".repeat(50));
    let options = with(SplitOptions::new(Lengths::new(4, 1)), |it| {
        it.packing = None;
        it.holdout = 0.2;
    });
    let split = options.text(DataFile::new(&path, &place.tokenizer()), &mut |_, _| ()).unwrap();
    let (Data::Text(training), Some(Data::Text(held_out))) = (split.training, split.held_out)
    else {
        panic!("a text was split into something else");
    };
    // Four tokens for each time but the last, which ends in a space: `the`, ` cat`, ...
    let all = place.tokenizer().encode("the cat ".repeat(50)).unwrap();
    assert_eq!(training.len() + held_out.len(), all.len());
    assert_eq!(held_out.len(), (all.len() as f64 * 0.2).round() as usize);
    assert_eq!([training.first(all.len()), held_out.first(all.len())].concat(), all);
}

#[test]
fn a_json_array_is_refused_with_the_command_to_convert_it() {
    let place = Place::chatml();
    let error = |text: &str| {
        let path = place.file(text);
        read_jsonl(&path, &place.tokenizer(), &mut |_, _| ()).unwrap_err()
    };
    for array in ["[{\"text\": \"a\"}, {\"text\": \"b\"}]", "\n[\n{\"text\":\n\"a\"}]\n", "[]"] {
        let text = error(array).to_string();
        assert!(text.contains("one JSON array") && text.contains("jq -c '.[]'"), "{text}");
    }
    // Lines that are arrays are lines that cannot be used.
    let found = error("[\"a\", null, null, null]\n[\"b\", null, null, null]");
    assert!(matches!(found, Error::Data(DataError::Malformed { count: 2, .. })), "{found}");
}

#[test]
fn a_line_longer_than_the_limit_is_named() {
    let place = Place::chatml();
    let path = place.file("{\"text\": \"a\"}\n");
    let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    // The rest of the file is one line of zeros.
    file.set_len(3 * JsonlLimits::MAXIMUM.line as u64).unwrap();
    let found = read_jsonl(&path, &place.tokenizer(), &mut |_, _| ()).unwrap_err();
    assert!(matches!(found, Error::Data(DataError::LongLine { line: 2, .. })), "{found}");
}

#[test]
fn conversations_without_an_answer_are_named() {
    let place = Place::chatml();
    let line = json!({ "messages": [{ "role": "user", "content": "x" }] });
    let found = place.read(&[line.clone(), line.clone()]).unwrap_err();
    assert!(matches!(found, Error::Data(DataError::NoAssistant { examples: 2, .. })), "{found}");
    assert!(found.to_string().contains("` have no token with loss: no message has the role"));
    place.read(&[line, json!({ "text": "x" })]).unwrap();
}

#[test]
fn a_token_outside_the_vocabulary_is_found_in_text_and_in_examples() {
    let outside = |data: Data, vocab| match data.require_vocab(vocab) {
        Ok(()) => None,
        Err(Error::Data(DataError::OutsideVocabulary { token, position, .. })) => {
            Some((token, position))
        }
        Err(error) => panic!("{error}"),
    };
    let text = || TextData::from_tokens(vec![1, 9, 2, 9]).into();
    assert_eq!((outside(text(), 10), outside(text(), 9)), (None, Some((9, 1))));
    let example = Example::completion("ab", "z", &Tokenizer::bytes()).unwrap();
    let layout = Layout { lengths: Lengths::new(4, 1), packing: false, pad: 0 };
    let examples = || Examples::new(vec![example.clone()], layout).unwrap().into();
    // The last token is only a target.
    assert_eq!((outside(examples(), 123), outside(examples(), 122)), (None, Some((122, 1))));
    assert_eq!(outside(examples(), 98), Some((98, 1)));
    let padded = Examples::new(vec![example.clone()], Layout { pad: 256, ..layout }).unwrap();
    assert_eq!(outside(padded.into(), 256), Some((256, 0)));
}

#[test]
fn examples_have_no_batch_without_tokens_or_with_too_many() {
    let example = || Example::text("abc", &Tokenizer::bytes()).unwrap();
    let examples = |seq, packing| {
        let layout = Layout { lengths: Lengths::new(seq, 2), packing, pad: 0 };
        Examples::new(vec![example()], layout)
    };
    for packing in [true, false] {
        for seq in [0, 1 << 32, usize::MAX] {
            let error = examples(seq, packing).unwrap_err();
            assert!(matches!(error, DataError::Shape { batch: 1, .. }), "{error}");
        }
        let examples = examples(4, packing).unwrap();
        for batch in [0, 1 << 30, usize::MAX] {
            let [first, in_order] = [
                examples.batch([batch, 4], 0, 0).map(Some),
                examples.in_order([batch, 4], usize::MAX),
            ];
            for found in [first, in_order] {
                let error = found.unwrap_err();
                assert!(matches!(error, Error::Data(DataError::Shape { seq: 4, .. })), "{error}");
            }
        }
        assert_eq!(examples.in_order([2, 4], usize::MAX).unwrap(), None);
    }
}
