//! Conversations: the text that chat templates render, and the assistant's turns in it.

use std::fs;

use retrograph_finetune::Conversation;
use serde_json::{Value, json};

use crate::data::{CHATML, Place};
use crate::small_tokenizer::{LLAMA3, chatml, llama3};

/// A message.
fn say(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

pub(crate) fn conversation() -> Value {
    let messages = [
        say("system", "be brief"),
        say("user", "the cat"),
        say("assistant", "purrs"),
        say("user", "or"),
        say("assistant", "the other"),
    ];
    json!({ "messages": messages })
}

#[test]
fn the_turns_of_the_assistant_have_loss_in_chatml() {
    let expected = "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nthe cat<|im_end|>\n\
                    <|im_start|>assistant\n[purrs<|im_end|>]\n<|im_start|>user\nor<|im_end|>\n\
                    <|im_start|>assistant\n[the other<|im_end|>]\n";
    assert_eq!(Place::chatml().marked(conversation()), expected);
}

#[test]
fn the_assistant_turns_of_a_llama_3_template_have_loss() {
    let header = |role: &str| format!("<|start_header_id|>{role}<|end_header_id|>\n\n");
    let expected = [
        "<|begin_of_text|>".to_owned(),
        header("system") + "Today Date: 26 Jul 2024\n\nbe brief<|eot_id|>",
        header("user") + "the cat<|eot_id|>",
        header("assistant") + "[purrs<|eot_id|>]",
        header("user") + "or<|eot_id|>",
        header("assistant") + "[the other<|eot_id|>]",
    ];
    assert_eq!(Place::new(&LLAMA3, &llama3()).marked(conversation()), expected.concat());
}

/// Leaves out the reasoning of earlier turns, like some templates.
#[test]
fn a_template_may_render_earlier_answers_differently() {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n\
        {% if m.role == 'assistant' and loop.last %}(hm) {% endif %}{{ m.content }}<|im_end|>\n\
        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let mut settings = chatml();
    settings["chat_template"] = json!([{ "name": "default", "template": template }]);
    let expected = "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n[y<|im_end|>]\n\
                    <|im_start|>user\nz<|im_end|>\n<|im_start|>assistant\n[(hm) w<|im_end|>]\n";
    let all = [say("user", "x"), say("assistant", "y"), say("user", "z"), say("assistant", "w")];
    let place = Place::new(&CHATML, &settings);
    assert_eq!(place.marked(json!({ "messages": all })), expected);
}

/// The Jinja and Python features that templates of recent models use: a namespace that a loop sets,
/// lists from the end, tools as JSON, and string methods that remove reasoning.
#[test]
fn a_template_may_offer_tools_and_leave_thoughts_out() {
    let template = "{%- if tools %}\n{{- '<|im_start|>tools' }}\n\
        {%- for tool in tools %}{{- ' ' + (tool | tojson) }}{%- endfor %}\n\
        {{- '<|im_end|>\\n' }}\n{%- endif %}\n\
        {%- set ns = namespace(asked=-1, open=true) %}\n\
        {%- for m in messages[::-1] %}\n\
        {%- if ns.open and m.role == 'user' and m.content is string %}\n\
        {%- set ns.open = false %}\n\
        {%- set ns.asked = (messages | length) - 1 - loop.index0 %}\n\
        {%- endif %}\n{%- endfor %}\n\
        {%- for m in messages %}\n\
        {%- set content = m.content %}\n\
        {%- if '</think>' in content and loop.index0 < ns.asked %}\n\
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n\
        {%- endif %}\n\
        {{- '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}\n\
        {%- endfor %}\n\
        {%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
    let place = Place::chatml();
    fs::write(place.0.path().join("chat_template.jinja"), template).unwrap();
    let thought = "<think>\nhm\n</think>\n\n";
    let messages = [
        say("user", "x"),
        say("assistant", &format!("{thought}y")),
        say("user", "z"),
        say("assistant", &format!("{thought}w")),
    ];
    let line = json!({ "messages": messages, "tools": [{ "name": "f", "all": [1, "<"] }] });
    let expected = format!(
        "<|im_start|>tools {{\"all\": [1, \"<\"], \"name\": \"f\"}}<|im_end|>\n\
         <|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n[y<|im_end|>]\n\
         <|im_start|>user\nz<|im_end|>\n<|im_start|>assistant\n[{thought}w<|im_end|>]\n"
    );
    assert_eq!(place.marked(line), expected);
}

/// Templates of reasoning models: the generation prompt opens a thought, or contains an empty one;
/// earlier answers have no thought, or their own.
#[test]
fn a_template_may_let_the_model_begin_with_a_thought() {
    let written = |opened: &str, last: &str, answers: [&str; 2]| {
        let template = format!(
            "{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n\
             {{% if m.role == 'assistant' and loop.last and '<think>' not in m.content %}}\
             {last}{{% endif %}}{{{{ m.content }}}}<|im_end|>\n\
             {{% endfor %}}{{% if add_generation_prompt %}}<|im_start|>assistant\n{opened}\
             {{% endif %}}"
        );
        let mut settings = chatml();
        settings["chat_template"] = json!(template);
        let [first, second] = answers.map(|answer| say("assistant", answer));
        let line = json!({ "messages": [say("user", "x"), first, say("user", "z"), second] });
        Place::new(&CHATML, &settings).marked(line)
    };
    let expected = |answers: [&str; 2]| {
        format!(
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n{}\n\
             <|im_start|>user\nz<|im_end|>\n<|im_start|>assistant\n{}\n",
            answers[0], answers[1]
        )
    };
    // An answer may begin as the thought does.
    let opened = written("<think>\n", "", ["y", "<b>"]);
    assert_eq!(opened, expected(["[y<|im_end|>]", "[<b><|im_end|>]"]));
    let empty = "<think>\n\n</think>\n\n";
    let thoughts = written(empty, empty, ["<think>\nhm\n</think>\n\ny", "w"]);
    let own = "<think>\n[hm\n</think>\n\ny<|im_end|>]";
    assert_eq!(thoughts, expected([own, &format!("{empty}[w<|im_end|>]")]));
}

/// Some templates write a token only after the last message.
#[test]
fn tokens_after_an_answer_have_no_loss() {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n\
        {% else %}<|pad|>{% endif %}";
    let mut settings = chatml();
    settings["chat_template"] = json!(template);
    settings["eos_token"] = json!("<|pad|>");
    let expected = "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nthe cat<|im_end|>\n\
                    <|im_start|>assistant\n[purrs<|im_end|>]\n<|im_start|>user\nor<|im_end|>\n\
                    <|im_start|>assistant\n[the other<|im_end|>\n<|pad|>]";
    assert_eq!(Place::new(&CHATML, &settings).marked(conversation()), expected);

    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\
        {% if loop.last and not add_generation_prompt %}<|im_end|>{% else %}<|pad|>{% endif %}\
        {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";
    settings["chat_template"] = json!(template);
    let expected = "system: be brief<|pad|>user: the cat<|pad|>assistant: [purrs]<|pad|>\
                    user: or<|pad|>assistant: [the other<|im_end|>]";
    assert_eq!(Place::new(&CHATML, &settings).marked(conversation()), expected);
}

/// The error of rendering `messages` by `template`.
fn refused(template: &str, messages: &[Value]) -> String {
    let mut settings = chatml();
    settings["chat_template"] = json!(template);
    let line = json!({ "messages": messages });
    Place::new(&CHATML, &settings).read(&[line]).unwrap_err().to_string()
}

/// The text before an answer must not depend on the answer or on later messages.
#[test]
fn a_template_whose_text_before_an_answer_varies_is_refused() {
    let messages = [say("user", "x"), say("assistant", "y"), say("user", "z")];
    let plain = "{{ m.content }}";
    let last = "{% if loop.last %}{{ m.content }}{% else %}({{ m.content }}){% endif %}";
    let long =
        "{% if messages | length > 2 %}({{ m.content }}){% else %}{{ m.content }}{% endif %}";
    let marked = "{% if m.role == 'assistant' %}b:\n{% endif %}{{ m.content }}";
    for (content, header) in
        [(last, "assistant"), (plain, "model"), (long, "assistant"), (marked, "assistant\na:")]
    {
        let template = format!(
            "{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{content}<|im_end|>\n\
             {{% endfor %}}{{% if add_generation_prompt %}}<|im_start|>{header}\n{{% endif %}}"
        );
        let error = refused(&template, &messages);
        assert!(error.contains("the start of message 2"), "{content} {header}: {error}");
    }
}

/// The text after an answer depends on the answer.
#[test]
fn a_template_that_hides_where_an_answer_ends_is_refused() {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n\
        {% else %}{{ messages[1].content | length }}{% endif %}";
    let messages = [say("user", "x"), say("assistant", "yes"), say("user", "z")];
    let error = refused(template, &messages);
    assert!(error.contains("the end of message 2"), "{error}");
}

/// Missing tools are none; a missing special token is undefined.
#[test]
fn a_template_sees_missing_fields_as_undefined() {
    let template = "{{ bos_token }}{{ tools is none }} {{ bos_token is defined }} {{ eos_token }}";
    let place = Place::chatml();
    fs::write(place.0.path().join("chat_template.jinja"), template).unwrap();
    let conversation = Conversation::new([("user", "x")]);
    let text = place.tokenizer().chat_template().unwrap().render(&conversation, 1, false).unwrap();
    assert_eq!(text, "True False <|im_end|>");
}

/// Many messages, with whitespace around some answers and without text in others.
fn long(turns: usize) -> Vec<(String, String)> {
    let answer = |turn: usize| match turn % 5 {
        0 => format!("  answer {turn}\n"),
        1 => String::new(),
        2 => " \n".to_owned(),
        3 => format!("<|im_start|>assistant\nanswer {turn}"),
        _ => format!("answer, {turn}"),
    };
    (0..turns).map(|turn| (format!("question {turn}\n"), answer(turn))).collect()
}

fn messages(turns: &[(String, String)]) -> Value {
    let pair =
        |(question, answer): &(String, String)| [say("user", question), say("assistant", answer)];
    json!({ "messages": turns.iter().flat_map(pair).collect::<Vec<_>>() })
}

#[test]
fn the_turns_of_a_long_conversation_match_those_of_a_short_one() {
    let turns = long(25);
    let chatml_text = |(question, answer): &(String, String)| {
        format!(
            "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n[{answer}<|im_end|>]\n"
        )
    };
    let expected: String = turns.iter().map(chatml_text).collect();
    assert_eq!(Place::chatml().marked(messages(&turns)), expected);

    // This one trims messages.
    let header = |role: &str| format!("<|start_header_id|>{role}<|end_header_id|>\n\n");
    let llama_text = |(question, answer): &(String, String)| {
        let [user, assistant] = ["user", "assistant"].map(header);
        format!("{user}{}<|eot_id|>{assistant}[{}<|eot_id|>]", question.trim(), answer.trim())
    };
    let start = header("system");
    let start = format!("<|begin_of_text|>{start}Today Date: 26 Jul 2024\n\n<|eot_id|>");
    let expected = start + &turns.iter().map(llama_text).collect::<String>();
    assert_eq!(Place::new(&LLAMA3, &llama3()).marked(messages(&turns)), expected);

    // This one writes the last answer in another way.
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n\
        {% if m.role == 'assistant' and loop.last %}(hm) {% endif %}{{ m.content }}\
        <|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let mut settings = chatml();
    settings["chat_template"] = template.into();
    let (early, late) = turns.split_at(24);
    let thoughtful = |(question, answer): &(String, String)| {
        chatml_text(&(question.clone(), format!("(hm) {answer}")))
    };
    let expected: String =
        early.iter().map(chatml_text).chain(late.iter().map(thoughtful)).collect();
    assert_eq!(Place::new(&CHATML, &settings).marked(messages(&turns)), expected);
}

/// A template that writes tool calls, with its settings.
fn with_tools() -> Value {
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\
        {% for t in m.tool_calls or [] %}<call>{{ t.function.name }}</call>{% endfor %}\
        <|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let mut settings = chatml();
    settings["chat_template"] = template.into();
    settings
}

/// Questions, each with a call of a tool, its result, and an answer that may be empty.
fn tool_calls(turns: usize) -> Value {
    let turn = |turn: usize| {
        let call = json!({ "function": { "name": format!("f{turn}"), "arguments": {} } });
        let answer = if turn.is_multiple_of(2) { "" } else { "eats" };
        [
            say("user", &format!("question {turn}")),
            json!({ "role": "assistant", "content": "", "tool_calls": [call] }),
            say("tool", &format!("result {turn}")),
            say("assistant", answer),
        ]
    };
    json!({ "messages": (0..turns).flat_map(turn).collect::<Vec<_>>() })
}

#[test]
fn calls_of_tools_and_empty_answers_of_a_long_conversation_are_found() {
    let text = |turn: usize| {
        let answer = if turn.is_multiple_of(2) { "" } else { "eats" };
        format!(
            "<|im_start|>user\nquestion {turn}<|im_end|>\n\
             <|im_start|>assistant\n[<call>f{turn}</call><|im_end|>]\n\
             <|im_start|>tool\nresult {turn}<|im_end|>\n\
             <|im_start|>assistant\n[{answer}<|im_end|>]\n"
        )
    };
    // Few answers are looked for one by one.
    for turns in [3, 40] {
        let expected: String = (0..turns).map(text).collect();
        assert_eq!(Place::new(&CHATML, &with_tools()).marked(tool_calls(turns)), expected);
    }
}

#[test]
fn the_time_for_tool_calls_grows_with_the_length_of_the_conversation() {
    // Looked for one by one, these answers take more text than the limit.
    let example = Place::new(&CHATML, &with_tools()).read(&[tool_calls(3000)]).unwrap().remove(0);
    let loss_tokens = example.loss_mask().iter().filter(|has_loss| **has_loss).count();
    assert!(loss_tokens > 6000, "{loss_tokens}");
}

#[test]
fn the_time_for_a_conversation_grows_with_its_length() {
    let place = Place::chatml();
    let turns: Vec<_> = long(3000).into_iter().map(|(one, _)| (one, "purrs".to_owned())).collect();
    let start = std::time::Instant::now();
    let example = place.read(&[messages(&turns)]).unwrap().remove(0);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    let loss_tokens = example.loss_mask().iter().filter(|has_loss| **has_loss).count();
    assert_eq!(loss_tokens, 3000 * 6);
}
