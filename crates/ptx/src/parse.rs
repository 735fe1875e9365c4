//! PTX text to a [`Module`].
//!
//! The parser reads the output of this crate and of `nvcc` for ordinary kernels. It rejects
//! everything that is not in the instruction table, and reports the position and a remedy. It also
//! resolves names and checks operand types, so a parsed module is valid.
//!
//! ```
//! let text = "
//! .version 7.0
//! .target sm_80
//! .address_size 64
//! .visible .entry twice(.param .u64 values) {
//!     .reg .f32 %f<2>;
//!     .reg .b64 %rd<2>;
//!     ld.param.u64 %rd0, [values];
//!     cvta.to.global.u64 %rd1, %rd0;
//!     ld.global.f32 %f0, [%rd1];
//!     add.rn.f32 %f1, %f0, %f0;
//!     st.global.f32 [%rd1], %f1;
//!     ret;
//! }";
//! let module = retrograph_ptx::parse(text)?;
//! assert_eq!(module.entries[0].name, "twice");
//!
//! let error = retrograph_ptx::parse(&text.replace("add.rn", "add.rni")).unwrap_err();
//! assert_eq!(error.line, 11);
//! # Ok::<(), retrograph_ptx::ParseError>(())
//! ```
//!
//! `.loc` and `.file` become a [`LineTable`]; comments, `.section` and `.pragma` are skipped. Not
//! supported: calls through pointers, textures, and 32-bit addressing.

mod body;
mod labels;
mod lexer;
mod mnemonic;
mod module;
mod module_scope;
mod nested;
mod operand;
mod scope;
mod variable;

use labels::Labels;
use lexer::{Lexer, Position, Token};

use crate::ast::{LineTable, Module};

/// The reason why a text is not a valid module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: found {found}, expected {expected}{}", help_suffix(.help))]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: u32,
    /// The column, counted from 1 in characters.
    pub column: u32,
    /// The found text.
    pub found: String,
    /// The expected text.
    pub expected: String,
    /// Advice; may be empty.
    pub help: String,
    /// Whether PTX has the found text, but the instruction table of this crate lacks it.
    pub is_missing: bool,
}

fn help_suffix(help: &str) -> String {
    if help.is_empty() { String::new() } else { format!(" ({help})") }
}

impl ParseError {
    fn new(at: Position, found: impl Into<String>, expected: impl Into<String>) -> Self {
        let (line, column) = (at.line, at.column);
        let (found, expected) = (found.into(), expected.into());
        Self { line, column, found, expected, help: String::new(), is_missing: false }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Self { help: help.into(), ..self }
    }
}

type Result<T> = std::result::Result<T, ParseError>;

/// Parses and checks a module, in linear time.
///
/// # Errors
/// The first token in `text` that is not accepted.
pub fn parse(text: &str) -> Result<Module> {
    let tokens = Lexer::new(text).tokens()?;
    let (labels, lines) = (Labels::find(&tokens), LineTable::default());
    module::parse_module(&mut Cursor { tokens: &tokens, next: 0, labels, lines })
}

/// The remaining tokens.
struct Cursor<'a> {
    /// Ends with [`Token::End`].
    tokens: &'a [(Token<'a>, Position)],
    next: usize,
    labels: Labels<'a>,
    /// The line table so far.
    lines: LineTable,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.next].0
    }

    /// The token after the next one.
    fn peek_second(&self) -> Token<'a> {
        self.tokens[(self.next + 1).min(self.tokens.len() - 1)].0
    }

    fn position(&self) -> Position {
        self.tokens[self.next].1
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// Takes the next token if it is `symbol`.
    fn accept(&mut self, symbol: char) -> bool {
        let found = self.peek() == Token::Symbol(symbol);
        if found {
            self.take();
        }
        found
    }

    /// Takes the next token if it is `.word`.
    fn accept_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Token::Dotted(word);
        if found {
            self.take();
        }
        found
    }

    fn expect(&mut self, symbol: char) -> Result<()> {
        if self.accept(symbol) { Ok(()) } else { Err(self.unexpected(format!("`{symbol}`"))) }
    }

    /// A name.
    fn name(&mut self, expected: &str) -> Result<&'a str> {
        match self.peek() {
            Token::Name(name) if name != "_" => {
                self.take();
                Ok(name)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    fn expect_name(&mut self, name: &str) -> Result<()> {
        if self.peek() != Token::Name(name) {
            return Err(self.unexpected(format!("`{name}`")));
        }
        self.take();
        Ok(())
    }

    /// A non-negative integer that fits in 32 bits.
    fn count(&mut self) -> Result<u32> {
        let at = self.position();
        let Token::Number(text) = self.peek() else {
            return Err(self.unexpected("a number"));
        };
        self.take();
        let value = lexer::integer(text).and_then(|value| u32::try_from(value).ok());
        value.ok_or_else(|| ParseError::new(at, format!("`{text}`"), "a 32-bit number"))
    }

    fn unexpected(&self, expected: impl Into<String>) -> ParseError {
        ParseError::new(self.position(), self.peek().describe(), expected)
    }

    /// The labels of the block whose `{` was taken last.
    fn labels(&mut self) -> Vec<&'a str> {
        self.labels.take(self.next - 1)
    }

    /// `.file NUMBER "NAME"`, possibly with a time and a size.
    fn parse_file(&mut self) -> Result<()> {
        self.take();
        let file = self.count()?;
        let Token::Text(name) = self.peek() else {
            return Err(self.unexpected("the name of a file"));
        };
        self.take();
        while self.accept(',') {
            let Token::Number(_) = self.peek() else {
                return Err(self.unexpected("the time or the size of the file"));
            };
            self.take();
        }
        self.lines.add_file(file, name);
        Ok(())
    }

    /// `.loc FILE LINE COLUMN`, possibly with `, function_name LABEL, inlined_at FILE LINE COLUMN`.
    fn parse_loc(&mut self) -> Result<()> {
        let at = self.position().line;
        self.take();
        let (file, line, _column) = (self.count()?, self.count()?, self.count()?);
        self.lines.begin(at, file, line);
        if !self.accept(',') {
            return Ok(());
        }
        self.expect_name("function_name")?;
        self.name("a label of a debug section")?;
        if self.accept('+') {
            self.count()?;
        }
        self.expect(',')?;
        self.expect_name("inlined_at")?;
        for _ in 0..3 {
            self.count()?;
        }
        Ok(())
    }

    /// `.pragma "TEXT", "TEXT";`
    fn skip_pragma(&mut self) -> Result<()> {
        self.take();
        loop {
            let Token::Text(_) = self.peek() else {
                return Err(self.unexpected("the text of a pragma"));
            };
            self.take();
            if !self.accept(',') {
                return self.expect(';');
            }
        }
    }

    /// Skips a block in braces.
    fn skip_block(&mut self) -> Result<()> {
        while self.peek() != Token::Symbol('{') {
            if self.peek() == Token::End {
                return Err(self.unexpected("`{`"));
            }
            self.take();
        }
        let mut depth = 0;
        loop {
            match self.take() {
                Token::Symbol('{') => depth += 1,
                Token::Symbol('}') => depth -= 1,
                Token::End => return Err(self.unexpected("`}`")),
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Ends the row of the last `.loc` at the end of a function.
    fn end_of_lines(&mut self) {
        let line = self.position().line;
        self.lines.end(line);
    }

    /// Skips a directive without semantics, and records line information.
    fn skip_debug(&mut self) -> Result<bool> {
        match self.peek() {
            Token::Dotted("loc") => self.parse_loc()?,
            Token::Dotted("file") => self.parse_file()?,
            Token::Dotted("section") => self.skip_block()?,
            Token::Dotted("pragma") => self.skip_pragma()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}
