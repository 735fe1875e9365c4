//! Expansion of scenario files: snippets, loops and substitution.

mod words;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use self::words::{substitute, substituted, unquoted, without_comment, words};
use crate::error::{Location, Problem, ScenarioError};

/// The text of a file.
pub(super) struct SourceFile {
    pub(super) file: Arc<PathBuf>,
    pub(super) text: Result<String, String>,
}

/// A line with its place.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) place: Location,
}

/// A scenario as lines.
pub(super) struct Expanded {
    pub(super) name: String,
    pub(super) place: Location,
    pub(super) lines: Vec<Line>,
}

#[derive(Clone, Default)]
struct Snippet {
    parameters: Vec<String>,
    lines: Vec<Line>,
}

/// One value of a loop variable: the text for names and for steps.
#[derive(Clone, Debug)]
struct Binding {
    name: String,
    label: String,
    text: String,
}

const CONTEXT: &str = "cuInit 0\ncuDevicePrimaryCtxRetain &context 0\ncuCtxSetCurrent context";

/// Expands a file. `shared` are files with snippets for all files.
pub(super) fn file(
    source: &SourceFile,
    shared: &[SourceFile],
) -> Result<Vec<Expanded>, ScenarioError> {
    let mut snippets = HashMap::new();
    for other in shared {
        blocks(other, &mut snippets)?;
    }
    let mut scenarios = Vec::new();
    for (head, body) in blocks(source, &mut snippets)? {
        scenarios.extend(scenario(&head, &body, &snippets)?);
    }
    Ok(scenarios)
}

/// The scenarios of a file as head and body; snippets go into the map.
fn blocks(
    source: &SourceFile,
    snippets: &mut HashMap<String, Snippet>,
) -> Result<Vec<(Line, Vec<Line>)>, ScenarioError> {
    let mut scenarios = Vec::new();
    let mut lines = lines(source)?.into_iter();
    while let Some(head) = lines.next() {
        let mut body = Vec::new();
        loop {
            match lines.next() {
                Some(line) if line.text == "end" => break,
                Some(line) if !line.text.starts_with("scenario ") => body.push(line),
                _ => return wrong(&head, "`end` after the block that begins here"),
            }
        }
        let mut words = head.text.split_whitespace();
        match words.next() {
            Some("snippet") => {
                let name = words.next().unwrap_or_default().to_owned();
                let parameters = words.map(str::to_owned).collect();
                snippets.insert(name, Snippet { parameters, lines: body });
            }
            Some("scenario") => scenarios.push((head, body)),
            _ => return wrong(&head, "`scenario` or `snippet`"),
        }
    }
    Ok(scenarios)
}

fn wrong<T>(line: &Line, expected: &'static str) -> Result<T, ScenarioError> {
    Err(Problem::Syntax { expected, found: line.text.clone() }.at(&line.place))
}

fn lines(source: &SourceFile) -> Result<Vec<Line>, ScenarioError> {
    let place = |line| Location { file: Arc::clone(&source.file), line };
    let text = source
        .text
        .as_ref()
        .map_err(|reason| Problem::File { reason: reason.clone() }.at(&place(0)))?;
    let numbered = text.lines().enumerate();
    let lines = numbered.map(|(at, text)| Line {
        text: without_comment(text).trim().to_owned(),
        place: place(at + 1),
    });
    Ok(lines.filter(|line| !line.text.is_empty()).collect())
}

fn scenario(
    head: &Line,
    body: &[Line],
    snippets: &HashMap<String, Snippet>,
) -> Result<Vec<Expanded>, ScenarioError> {
    let Some(name) = head.text.split_whitespace().nth(1) else {
        return wrong(head, "a name");
    };
    let mut choices = vec![Vec::new()];
    for line in body.iter().filter(|line| line.text.starts_with("for ")) {
        let options = options(line)?;
        choices = choices
            .iter()
            .flat_map(|chosen: &Vec<Binding>| {
                options.iter().map(move |option| [chosen.as_slice(), option].concat())
            })
            .collect();
    }
    let steps: Vec<_> =
        body.iter().filter(|line| !line.text.starts_with("for ")).cloned().collect();
    let expand_one = |bindings: &Vec<Binding>| {
        let labels: Vec<_> =
            bindings.iter().map(|one| (one.name.as_str(), one.label.as_str())).collect();
        let texts: Vec<_> =
            bindings.iter().map(|one| (one.name.as_str(), one.text.as_str())).collect();
        let mut lines = Vec::new();
        for line in &steps {
            expand(&substituted(line, &texts), snippets, 0, &mut lines)?;
        }
        let name = substitute(name, &labels);
        Ok(Expanded { name, place: head.place.clone(), lines })
    };
    choices.iter().map(expand_one).collect()
}

/// `for a,b in 1,2 label="text"`: each option binds all of the names.
fn options(line: &Line) -> Result<Vec<Vec<Binding>>, ScenarioError> {
    let words = words(&line.text);
    let [_, names, keyword, values @ ..] = words.as_slice() else {
        return wrong(line, "`for NAME in VALUE…`");
    };
    if keyword != "in" || values.is_empty() {
        return wrong(line, "`for NAME in VALUE…`");
    }
    let names: Vec<_> = names.split(',').collect();
    let option = |value: &String| {
        let parts: Vec<&str> =
            if names.len() == 1 { vec![value] } else { value.split(',').collect() };
        if parts.len() != names.len() {
            return wrong(line, "as many values as names");
        }
        let bind = |(name, part): (&&str, &&str)| {
            let (label, text) = labelled(part);
            Binding { name: (*name).to_owned(), label, text }
        };
        Ok(names.iter().zip(&parts).map(bind).collect())
    };
    values.iter().map(option).collect()
}

/// `label="text"`, `label='text'`, or a word that is both.
fn labelled(value: &str) -> (String, String) {
    for quote in ['"', '\''] {
        let Some(before) = value.strip_suffix(quote) else { continue };
        if let Some((label, text)) = before.split_once(quote) {
            let label = label.strip_suffix('=').unwrap_or(label);
            let label = if label.is_empty() { text } else { label };
            return (label.to_owned(), text.to_owned());
        }
    }
    (value.to_owned(), value.to_owned())
}

/// Expands `use` lines.
fn expand(
    line: &Line,
    snippets: &HashMap<String, Snippet>,
    depth: usize,
    into: &mut Vec<Line>,
) -> Result<(), ScenarioError> {
    let Some(used) = line.text.strip_prefix("use ") else {
        // A substituted text may contain several steps.
        let parts = line.text.split(" ; ").map(str::trim).filter(|part| !part.is_empty());
        for part in parts {
            let line = Line { text: part.to_owned(), place: line.place.clone() };
            if part.starts_with("use ") {
                expand(&line, snippets, depth, into)?;
            } else {
                into.push(line);
            }
        }
        return Ok(());
    };
    if used.contains(" ; ") {
        for part in line.text.split(" ; ") {
            let line = Line { text: part.trim().to_owned(), place: line.place.clone() };
            expand(&line, snippets, depth, into)?;
        }
        return Ok(());
    }
    let words: Vec<_> = words(used).into_iter().map(unquoted).collect();
    let (name, arguments) = words.split_first().map_or(("", &[][..]), |(n, a)| (n.as_str(), a));
    let snippet = match snippets.get(name) {
        Some(snippet) => snippet.clone(),
        None if name == "context" => context(line),
        None => return wrong(line, "the name of a snippet"),
    };
    if depth > 16 || snippet.parameters.len() != arguments.len() {
        return wrong(line, "as many arguments as the snippet has parameters");
    }
    let names = snippet.parameters.iter().map(String::as_str);
    let bindings: Vec<_> = names.zip(arguments.iter().map(String::as_str)).collect();
    for inner in &snippet.lines {
        expand(&substituted(inner, &bindings), snippets, depth + 1, into)?;
    }
    Ok(())
}

/// The built-in snippet.
fn context(line: &Line) -> Snippet {
    let lines = CONTEXT.lines().map(|text| Line { text: text.to_owned(), ..line.clone() });
    Snippet { parameters: Vec::new(), lines: lines.collect() }
}
