//! Chat templates that would not terminate or would exhaust memory: each fails soon, with an error
//! that names the file and the limit.

use std::fs;
use std::time::{Duration, Instant};

use retrograph_finetune::{Conversation, HubError, Tokenizer};

use crate::small_tokenizer::{chatml, tokenizer, write};

/// A small conversation as rendered by a template.
fn rendered(template: &str) -> Result<String, HubError> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &tokenizer(&["<|im_start|>", "<|im_end|>", "<|pad|>"]), &chatml());
    fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let tokenizer = Tokenizer::open(folder.path()).unwrap();
    let conversation = Conversation::new([("user", "the cat"), ("assistant", "the")]);
    tokenizer.chat_template()?.render(&conversation, 2, false)
}

#[test]
fn templates_without_end_are_refused_by_name() {
    let double = "{% set s = s ~ s %}".repeat(60);
    let nested = |open: &str, inner: &str, close: &str, times: usize| {
        format!("{{{{ {}{inner}{} }}}}", open.repeat(times), close.repeat(times))
    };
    let cases = [
        ("deep not", nested("not ", "1", "", 50_000)),
        ("deep minus", nested("-", "1", "", 100_000)),
        ("deep parentheses", nested("(", "1", ")", 50_000)),
        ("deep lists", nested("[", "1", "]", 50_000)),
        ("long sum", nested("1 + ", "1", "", 50_000)),
        ("long attributes", nested("", "a", ".b", 90_000)),
        ("deep conditions", format!("{}{}", "{% if 1 %}".repeat(9000), "{% endif %}".repeat(9000))),
        ("many branches", format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(15_000))),
        ("long", "x".repeat(300 << 10)),
        ("cycle", "{% set n = namespace() %}{% set n.a = n %}{{ n }}".into()),
        ("cycle in a list", "{% set n = namespace() %}{% set n.a = [[n]] %}{{ n == n }}".into()),
        (
            "cycle of two",
            "{% set n = namespace() %}{% set m = namespace() %}\
            {% set n.a = m %}{% set m.a = n %}{{ n }}"
                .into(),
        ),
        (
            "cycle of a pair",
            "{% set n = namespace() %}{% set n.a, n.b = n, n %}{{ n|string }}".into(),
        ),
        (
            "depth",
            "{% set n = namespace(a=1) %}{% for i in range(9999) %}\
            {% set n.a = [n.a] %}{% endfor %}{{ n.a }}"
                .into(),
        ),
        (
            "loops",
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}".into(),
        ),
        (
            "long loop of text",
            format!("{{% for i in range(99999) %}}{}{{% endfor %}}", "x".repeat(100_000)),
        ),
        (
            "long loop in a block",
            format!(
                "{{% set s %}}{{% for i in range(99999) %}}{}{{% endfor %}}\
            {{% endset %}}",
                "x".repeat(100_000)
            ),
        ),
        ("doubling", format!("{{% set s = 'xxxxxxxx' %}}{double}{{{{ s|length }}}}")),
        ("doubling by +", format!("{{% set s = 'xxxxxxxx' %}}{}", double.replace('~', "+"))),
        (
            "doubling lists",
            format!("{{% set s = [1] %}}{}{{{{ s|length }}}}", double.replace('~', "+")),
        ),
        (
            "doubling in pairs",
            format!("{{% set s = [1] %}}{}{{{{ s == s }}}}", "{% set s = [s, s] %}".repeat(60)),
        ),
        (
            "doubling in a macro",
            "{% macro f(s, n) %}{% if n %}{{ f(s ~ s, n - 1) }}{% endif %}\
            {% endmacro %}{{ f('xxxxxxxx', 60) }}"
                .into(),
        ),
        (
            "doubling in a block",
            format!(
                "{{% set s = 'xxxxxxxx' %}}{}",
                "{% set s %}{{ s }}{{ s }}{% endset %}".repeat(60)
            ),
        ),
        ("indent", "{{ 'x'|indent(10000000000) }}".into()),
        ("indent by name", "{{ 'x\\ny'|indent(width=10000000000) }}".into()),
        ("indent lines", "{{ ('\\n' * 100000)|indent(9000) }}".into()),
        ("tojson", "{{ messages|tojson(indent=10000000000) }}".into()),
        ("tojson of many", "{{ range(99999)|list|tojson(indent=9999) }}".into()),
        ("replace", "{% set s = 'x' * 1000000 %}{{ s|replace('x', s) }}".into()),
        ("replace method", "{% set s = 'x' * 1000000 %}{{ s.replace('x', s) }}".into()),
        ("replace nothing", "{% set s = 'x' * 1000000 %}{{ s.replace('', s) }}".into()),
        ("join", "{% set s = 'x' * 1000000 %}{{ s|join(s) }}".into()),
        ("join method", "{% set s = 'x' * 1000000 %}{{ s.join(s) }}".into()),
        ("product", "{{ 'x' * 99999999 }}".into()),
        ("products", format!("{{{{ {} 1 }}}}", "'x' * 99999999 ~ ".repeat(100))),
        (
            "product of a variable",
            "{% set s = 'x' %}{% for i in range(20) %}{% set n = 9999 %}\
            {{ (s * n) * n }}{% endfor %}"
                .into(),
        ),
        ("power", "{{ 'x' * 10 ** 8 }}".into()),
        ("batch", "{{ [1]|batch(10000000000, 'x')|list }}".into()),
        ("slice", "{{ [1]|slice(10000000000)|list }}".into()),
        ("format", "{{ '%10000000000d'|format(1) }}".into()),
        ("format method", "{{ '{:>10000000000}'.format(1) }}".into()),
        ("format argument", "{{ '%*d'|format(1000000000, 1) }}".into()),
        (
            "split",
            "{% for i in range(999) %}{{ ('x ' * 900000).split(' ')|length }}{% endfor %}".into(),
        ),
        (
            "upper",
            "{% set s = 'x' * 900000 %}{% set n = namespace(l=[]) %}{% for i in range(9999) %}\
            {% set n.l = n.l + [s|upper] %}{% endfor %}"
                .into(),
        ),
        (
            "slices",
            "{% set s = 'x' * 900000 %}{% set n = namespace(l=[]) %}{% for i in range(9999) %}\
            {% set n.l = n.l + [s[1:]] %}{% endfor %}"
                .into(),
        ),
        ("recursion", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".into()),
        ("include", "{% include 'chat_template' %}".into()),
        ("debug", "{{ debug() }}".into()),
        ("long message", "{% set s = 'x' * 900000 %}{{ raise_exception(s) }}".into()),
    ];
    for (name, template) in cases {
        let start = Instant::now();
        let error = rendered(&template).map(|text| text.len()).expect_err(name);
        let taken = start.elapsed();
        assert!(taken < Duration::from_secs(40), "{name}: {taken:?}");
        let text = error.to_string();
        let named = match error {
            HubError::TemplateLimit { .. } | HubError::Json { .. } => {
                text.contains("chat_template.jinja")
            }
            HubError::Chat { .. } => true,
            _ => false,
        };
        assert!(named && text.len() < 10_000, "{name}: {text:.300}");
    }
}

#[test]
fn templates_within_the_limits_render() {
    for (template, expected) in [
        (
            "{% set n = namespace(a=[]) %}{% for m in messages %}{% set n.a = n.a + [m.role] %}\
            {% endfor %}{{ n.a|join(',') }}",
            "user,assistant",
        ),
        ("{{ '=' * 5 }}{{ 2 * 3 }}{{ [1, 2] * 2 }}{{ 7 // 2 ** 1 }}", "=====6[1, 2, 1, 2]3"),
        ("{{ messages[1:][0].content }}{{ 'abc'[::-1] }}{{ 'abc'[:2] }}", "thecbaab"),
        (
            "{{ ''[::-1] }}{{ [][::-1] }}{{ [1, 2, 3][:0:-1] }}{{ 'abc'[:2:-1] }}{{ 'abc'[::-2] }}\
            {{ 'abc'[-1:-9:-1] }}{{ 'abc'[9:-3:-1] }}{{ [1][::-9223372036854775807] }}",
            "[][3, 2]cacbacb[1]",
        ),
        ("{% for m in messages if m.role == 'user' %}{{ loop.index }}{% endfor %}", "1"),
        ("{{ 'a' in 'cat' and 'b' not in ['a'] and 'role' in messages[0] }}", "True"),
        ("{{ 1 < 2 < 3 }}{{ 'a' ~ 1 ~ none }}{{ 'x' + 'y' }}{{ 1 == 1.0 }}", "Truea1NonexyTrue"),
        (
            "{% macro f(a, b='c') %}{{ a }}{{ b }}{% endmacro %}{{ f('x') }}{{ f('y', b='z') }}",
            "xcyz",
        ),
        ("{% for a in [1, 2] recursive %}{{ a }}{% endfor %}{% set a, b = 1, 2 %}{{ b }}", "122"),
        (
            "{% set s %}a{{ 1 }}b{% endset %}{{ s|upper }}{% filter lower %}AB{% endfilter %}",
            "A1Bab",
        ),
        (
            "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list }}",
            "[\"the cat\"]",
        ),
        (
            "{{ 'a\nb'|indent(2) }}|{{ 'a-b'|replace('-', '+') }}|{{ '%05d'|format(7) }}",
            "a\n  b|a+b|00007",
        ),
        (
            "{{ {'a': [1]}|tojson(indent=1) }}{% if no is defined %}x{% elif 1 %}y{% endif %}",
            "{\n \"a\": [\n  1\n ]\n}y",
        ),
        ("a\n  {%- if true %} b {% else %} c {% endif -%}  \n d\n", "a b d"),
    ] {
        assert_eq!(rendered(template).expect(template), expected, "{template}");
    }
    let text = rendered("{{ 1 }}\n{{ raise_exception('no') }}").unwrap_err().to_string();
    assert!(text.contains("no (line 2 of the template)"), "{text}");
    let text = rendered("{{ 1 }}\n\n{{ none + 1 }}").unwrap_err().to_string();
    assert!(text.contains("line 3 of the template"), "{text}");
}
