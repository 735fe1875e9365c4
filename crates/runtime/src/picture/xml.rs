//! An XML writer that escapes all text and closes all elements.

use std::fmt::{self, Display, Write};

/// An XML text under construction. Open elements are closed at the end.
#[derive(Debug, Default)]
pub(super) struct Xml {
    text: String,
    open: Vec<&'static str>,
}

/// Attributes by name; values are escaped.
pub(super) type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

impl Xml {
    /// Opens an element.
    pub(super) fn open(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.start(name, attributes);
        self.text.push_str(">\n");
        self.open.push(name);
    }

    /// Closes the element that was opened last.
    pub(super) fn close(&mut self) {
        if let Some(name) = self.open.pop() {
            let _ = writeln!(self.text, "</{name}>");
        }
    }

    /// Writes an element with `text` in it, which may be empty.
    pub(super) fn leaf(&mut self, name: &'static str, attributes: Attributes<'_>, text: &str) {
        self.start(name, attributes);
        if text.is_empty() {
            self.text.push_str("/>\n");
            return;
        }
        self.text.push('>');
        let _ = Escaped(&mut self.text).write_str(text);
        let _ = writeln!(self.text, "</{name}>");
    }

    /// Closes every element and returns the text.
    pub(super) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text
    }

    fn start(&mut self, name: &str, attributes: Attributes<'_>) {
        let _ = write!(self.text, "<{name}");
        for (name, value) in attributes {
            let _ = write!(self.text, " {name}=\"");
            let _ = write!(Escaped(&mut self.text), "{value}");
            self.text.push('"');
        }
    }
}

/// Escapes text, and drops characters that are invalid in XML.
struct Escaped<'a>(&'a mut String);

impl fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\n' | '\t' => self.0.push(letter),
                '\u{FFFE}' | '\u{FFFF}' => self.0.push('\u{FFFD}'),
                control if control.is_control() => self.0.push('\u{FFFD}'),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn open_elements_are_closed_in_order() {
        let mut xml = Xml::default();
        xml.open("a", &[("x", &1.5), ("y", &"<\">")]);
        xml.open("b", &[]);
        xml.leaf("c", &[], "");
        xml.leaf("c", &[], "1 < 2 & 3");
        let expected = "<a x=\"1.5\" y=\"&lt;&quot;&gt;\">\n<b>\n<c/>\n<c>1 &lt; 2 &amp; 3</c>\n\
                        </b>\n</a>\n";
        assert_eq!(xml.finish(), expected);
    }

    proptest! {
        #[test]
        fn any_name_comes_back_as_it_was_but_for_what_xml_cannot_hold(
            name in any::<String>(), text in any::<String>(),
        ) {
            let mut xml = Xml::default();
            xml.open("a", &[("name", &name)]);
            xml.leaf("b", &[], &format!("|{text}|"));
            let written = xml.finish();
            let document = roxmltree::Document::parse(&written).unwrap();
            let holds = |letter: char| match letter {
                '\n' | '\t' => letter,
                '\u{FFFE}' | '\u{FFFF}' => '\u{FFFD}',
                other if other.is_control() => '\u{FFFD}',
                other => other,
            };
            // Parsers turn white space in attributes into spaces.
            let spaced = |letter| if matches!(letter, '\n' | '\t') { ' ' } else { letter };
            let expected: String = name.chars().map(holds).map(spaced).collect();
            let root = document.root_element();
            prop_assert_eq!(root.attribute("name"), Some(expected.as_str()));
            let expected: String = format!("|{text}|").chars().map(holds).collect();
            let held = root.first_element_child().and_then(|leaf| leaf.text());
            prop_assert_eq!(held, Some(expected.as_str()));
        }
    }
}
