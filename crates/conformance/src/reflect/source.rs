//! Parser of the declarations in the Rust source of driver-sys.

use super::Reflection;

/// A structure or union as written.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) is_union: bool,
    pub(super) align: usize,
    pub(super) fields: Vec<(String, String)>,
}

/// Reads all declarations that the scenario language needs.
pub(super) fn read(text: &str) -> Reflection {
    let tokens = tokens(text);
    let mut found = Reflection::default();
    let mut align = 0;
    for at in 0..tokens.len() {
        let rest = &tokens[at..];
        match word(rest, 0) {
            "repr" => align = alignment(rest),
            "handles" if word(rest, 1) == "!" && word(rest, 2) == "{" => {
                found.handles.extend(handles(&rest[3..]));
            }
            "pub" if matches!(word(rest, 1), "struct" | "union") => {
                structure(rest, align, &mut found);
                align = 0;
            }
            "pub" if word(rest, 1) == "type" && word(rest, 3) == "=" => {
                let target = until(&rest[4..], &[";"]);
                found.aliases.insert(word(rest, 2).to_owned(), target);
            }
            "pub" if word(rest, 1) == "const" && word(rest, 3) == ":" => {
                let after = rest.iter().position(|token| token == "=").unwrap_or(3) + 1;
                constant(word(rest, 2), &rest[after..], &mut found);
            }
            name if word(rest, 1) == "=" && name.starts_with("CU") => {
                constant(name, &rest[2..], &mut found);
            }
            name if word(rest, 1) == ":" && word(rest, 3) == "{" && name.starts_with("CU") => {
                found.aliases.entry(name.to_owned()).or_insert(word(rest, 2).to_owned());
            }
            _ => {}
        }
    }
    found
}

fn word(tokens: &[String], at: usize) -> &str {
    tokens.get(at).map_or("", String::as_str)
}

/// `repr(C, align(64))`: the minimum alignment, 0 for none.
fn alignment(tokens: &[String]) -> usize {
    let inside = tokens.iter().take(12).take_while(|token| *token != "]");
    let mut inside = inside.skip_while(|token| *token != "align").skip(2);
    inside.next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn handles(tokens: &[String]) -> Vec<String> {
    let inside = tokens.iter().take_while(|token| *token != "}");
    inside.filter(|token| token.starts_with("CU")).cloned().collect()
}

/// A constant whose value is a literal, a shift of literals, or another constant.
fn constant(name: &str, tokens: &[String], found: &mut Reflection) {
    let operand = |at: usize, found: &Reflection| {
        let (sign, at) = if word(tokens, at) == "-" { (-1, at + 1) } else { (1, at) };
        let text = word(tokens, at);
        Some(sign * integer(text).or_else(|| found.constants.get(text).copied())?)
    };
    let Some(first) = operand(0, found) else { return };
    let value = match (word(tokens, 1), word(tokens, 2)) {
        ("<", "<") => operand(3, found).map(|shift| first << shift),
        ("|", _) => operand(2, found).map(|other| first | other),
        _ => Some(first),
    };
    if let Some(value) = value {
        found.constants.insert(name.to_owned(), value);
    }
}

/// Parses an integer literal in Rust syntax.
pub(super) fn integer(text: &str) -> Option<i128> {
    let digits = text.replace('_', "");
    let digits = ["u8", "u32", "u64", "i32", "usize"]
        .iter()
        .find_map(|suffix| digits.strip_suffix(suffix))
        .unwrap_or(&digits);
    match digits.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

fn structure(tokens: &[String], align: usize, found: &mut Reflection) {
    let name = word(tokens, 2).to_owned();
    match word(tokens, 3) {
        "(" => {
            let skip = if word(tokens, 4) == "pub" { 5 } else { 4 };
            found.aliases.insert(name, until(&tokens[skip..], &[")"]));
        }
        "{" => {
            let is_union = word(tokens, 1) == "union";
            let fields = fields(&tokens[4..]);
            found.records.insert(name, Written { is_union, align, fields });
        }
        _ => {}
    }
}

fn fields(mut tokens: &[String]) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    while !tokens.is_empty() && tokens[0] != "}" {
        if tokens[0] == "pub" && word(tokens, 1) == "(" {
            tokens = &tokens[5.min(tokens.len())..];
            continue;
        }
        if word(tokens, 1) == ":" {
            let of = until(&tokens[2..], &[",", "}"]);
            let name = tokens[0].trim_start_matches("r#").to_owned();
            tokens = &tokens[2 + count_until(&tokens[2..], &[",", "}"])..];
            fields.push((name, of));
            continue;
        }
        tokens = &tokens[1..];
    }
    fields
}

/// The tokens before a closing one at the same depth, as text.
fn until(tokens: &[String], stops: &[&str]) -> String {
    let mut text = String::new();
    for token in &tokens[..count_until(tokens, stops)] {
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        if text.ends_with(is_word) && token.starts_with(is_word)
            || token == "*" && text.ends_with("mut")
        {
            text.push(' ');
        }
        text.push_str(token);
        if token == "mut" || token == "const" {
            text.push(' ');
        }
    }
    text.replace("* ", "*")
}

fn count_until(tokens: &[String], stops: &[&str]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        if depth == 0 && stops.contains(&token.as_str()) {
            return at;
        }
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Words, numbers and single punctuation marks, without comments and strings.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            string(rest)
        } else if first.is_alphanumeric() || first == '_' {
            // The name of `r#type` is `type`.
            let start = if rest.starts_with("r#") { 2 } else { 0 };
            let end = rest[start..].find(|c: char| !c.is_alphanumeric() && c != '_');
            let end = end.map_or(rest.len(), |end| start + end);
            tokens.push(rest[..end].to_owned());
            end
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of a string literal.
fn string(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}
