//! Reads values.

use super::{Out, Value};
use crate::error::Problem;
use crate::reflect::DRIVER;

pub(super) struct Reader<'a> {
    pub(super) rest: &'a str,
}

impl<'a> Reader<'a> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
    }

    fn take(&mut self, mark: &str) -> bool {
        match self.rest.strip_prefix(mark) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &'a str {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
        let end = self.rest.find(|c: char| !is_part(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn expect(&mut self, mark: &'static str) -> Result<(), Problem> {
        if self.take(mark) { Ok(()) } else { Problem::syntax(mark, self.rest) }
    }

    /// Values up to a closing mark, or to the end of the text for an empty one.
    pub(super) fn until(&mut self, close: &str) -> Result<Vec<Value>, Problem> {
        let mut values = Vec::new();
        loop {
            self.skip();
            if self.rest.is_empty() && close.is_empty() {
                return Ok(values);
            }
            if !close.is_empty() && self.take(close) {
                return Ok(values);
            }
            values.push(self.value()?);
        }
    }

    fn value(&mut self) -> Result<Value, Problem> {
        let text = self.rest;
        let Some(first) = text.chars().next() else {
            return Problem::syntax("a value", "");
        };
        match first {
            '&' => self.out(),
            '"' => self.text().map(Value::Text),
            '<' => self.image(),
            '[' => {
                self.rest = &text[1..];
                self.until("]").map(Value::List)
            }
            '{' => {
                self.rest = &text[1..];
                self.record()
            }
            '-' | '0'..='9' => self.number(),
            c if c.is_alphabetic() || c == '_' => self.named(),
            _ => Problem::syntax("a value", text),
        }
    }

    fn text(&mut self) -> Result<String, Problem> {
        let inside = &self.rest[1..];
        let mut text = String::new();
        let mut characters = inside.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.rest = &inside[at + 1..];
                    return Ok(text);
                }
                '\\' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, other)) => text.push(other),
                    None => break,
                },
                other => text.push(other),
            }
        }
        Problem::syntax("a closing quote", self.rest)
    }

    fn image(&mut self) -> Result<Value, Problem> {
        let Some(end) = self.rest.find('>') else {
            return Problem::syntax("`>`", self.rest);
        };
        let inside = &self.rest[1..end];
        self.rest = &self.rest[end + 1..];
        let (name, length) = match inside.split_once(':') {
            Some((name, length)) => match length.parse() {
                Ok(length) => (name, Some(length)),
                Err(_) => return Problem::syntax("a number of bytes", length),
            },
            None => (inside, None),
        };
        Ok(Value::Image(name.to_owned(), length))
    }

    fn number(&mut self) -> Result<Value, Problem> {
        let negative = self.take("-");
        let before = self.rest;
        let mut word = self.word();
        let exponent = !word.starts_with("0x") && word.ends_with(['e', 'E']);
        if exponent && self.rest.starts_with(['-', '+']) {
            self.rest = &self.rest[1..];
            self.word();
            word = &before[..before.len() - self.rest.len()];
        }
        let digits = word.replace('_', "");
        let integer = match digits.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(hex, 16).ok(),
            None => digits.parse::<i128>().ok(),
        };
        if let Some(integer) = integer {
            let mut value = if negative { -integer } else { integer };
            while self.take("|") {
                match self.value()? {
                    Value::Integer(other) => value |= other,
                    other => return Problem::value(other, "flags"),
                }
            }
            return Ok(Value::Integer(value));
        }
        match digits.parse::<f64>() {
            Ok(number) => Ok(Value::Float(if negative { -number } else { number })),
            Err(_) => Problem::syntax("a number", word),
        }
    }

    fn named(&mut self) -> Result<Value, Problem> {
        let mut name = self.word().to_owned();
        if self.take("(") {
            return self.function(&name);
        }
        match name.as_str() {
            "null" | "NULL" => return Ok(Value::Null),
            "inf" => return Ok(Value::Float(f64::INFINITY)),
            "nan" => return Ok(Value::Float(f64::NAN)),
            _ => {}
        }
        if let Some(mut value) = DRIVER.constant(&name) {
            while self.take("|") {
                match self.value()? {
                    Value::Integer(other) => value |= other,
                    other => return Problem::value(other, "flags"),
                }
            }
            return Ok(Value::Integer(value));
        }
        if name.starts_with("CU_") || name.starts_with("CUDA_") {
            return Problem::unknown("constant", name);
        }
        while self.rest.starts_with('[') {
            let end = self.rest.find(']').map_or(self.rest.len(), |end| end + 1);
            name.push_str(&self.rest[..end]);
            self.rest = &self.rest[end..];
            name.push_str(self.word());
        }
        self.offset(name)
    }

    fn offset(&mut self, name: String) -> Result<Value, Problem> {
        let sign = match self.rest.chars().next() {
            Some('+') => 1,
            Some('-') => -1,
            _ => return Ok(Value::Name(name)),
        };
        self.rest = &self.rest[1..];
        match self.number()? {
            Value::Integer(bytes) => Ok(Value::Offset(name, sign * bytes as i64)),
            other => Problem::value(other, "an offset"),
        }
    }

    fn function(&mut self, name: &str) -> Result<Value, Problem> {
        match name {
            "params" => {
                let mut parameters = Vec::new();
                loop {
                    self.skip();
                    if self.take(")") {
                        return Ok(Value::Parameters(parameters));
                    }
                    let of = self.word().to_owned();
                    self.skip();
                    parameters.push((of, self.value()?));
                }
            }
            "hostfn" | "callback" => {
                let said = self.word().to_owned();
                self.expect(")")?;
                let is_host = name == "hostfn";
                Ok(if is_host { Value::HostFunction(said) } else { Value::Callback(said) })
            }
            "size" => {
                let name = self.word().to_owned();
                self.expect(")")?;
                Ok(Value::ImageSize(name))
            }
            "sleepfn" => {
                let value = self.value()?;
                self.expect(")")?;
                match value {
                    Value::Integer(milliseconds) => Ok(Value::SleepFunction(milliseconds as u64)),
                    other => Problem::value(other, "milliseconds"),
                }
            }
            _ => Problem::unknown("form of value", name),
        }
    }

    fn record(&mut self) -> Result<Value, Problem> {
        let mut fields = Vec::new();
        loop {
            self.skip();
            if self.take("}") {
                return Ok(Value::Record(fields));
            }
            let name = self.word().to_owned();
            if name.is_empty() {
                return Problem::syntax("a field", self.rest);
            }
            self.skip();
            self.expect("=")?;
            self.skip();
            fields.push((name, self.value()?));
        }
    }

    fn out(&mut self) -> Result<Value, Problem> {
        self.rest = &self.rest[1..];
        let name = self.word().to_owned();
        let is_recorded = !name.starts_with('_');
        let name = name.trim_start_matches('_').to_owned();
        if name.is_empty() {
            return Problem::syntax("a variable after `&`", self.rest);
        }
        let of = self.take(":").then(|| self.word().to_owned());
        let mut count = None;
        if self.take("[") {
            let digits = self.word();
            count = match digits.parse() {
                Ok(count) => Some(count),
                Err(_) => return Problem::syntax("a count", digits),
            };
            self.expect("]")?;
        }
        let mut initial = Vec::new();
        if self.take("=") {
            initial.push(self.value()?);
            // A comma without a blank continues the values of this output.
            let goes_on =
                |rest: &str| rest.starts_with(',') && !rest[1..].starts_with(char::is_whitespace);
            while (of.is_some() || count.is_some()) && goes_on(self.rest) {
                self.rest = &self.rest[1..];
                initial.push(self.value()?);
            }
        }
        Ok(Value::Out(Box::new(Out { name, is_recorded, of, count, initial })))
    }
}
