//! A chat template, and after a zero byte the conversation that it writes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use retrograph_finetune::{ChatTemplate, Conversation};

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let Some(Ok(template)) = parts.next().map(std::str::from_utf8) else { return };
    let Ok(template) = ChatTemplate::parse("template".as_ref(), template) else { return };
    let given = parts.next().and_then(|text| serde_json::from_slice(text).ok());
    let conversation: Conversation =
        given.unwrap_or_else(|| Conversation::new([("user", "a"), ("assistant", "b")]));
    let _ = template.render(&conversation, conversation.len(), true);
});
