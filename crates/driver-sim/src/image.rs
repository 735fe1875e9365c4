//! Cache of parsed images, shared by all simulators of a process. Tests load the same kernels
//! repeatedly, and a link parses its result before it is loaded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use retrograph_ptx::{ParseError, ast};
use retrograph_ptx_exec::{DecodeError, Program};

/// Decoded kernels by name.
pub(crate) type Programs = BTreeMap<String, Arc<Program>>;

/// The maximum total text of cached images, in bytes.
const KEPT: usize = 4 << 20;

/// A parsed image.
pub(crate) struct Image {
    text: Box<str>,
    pub(crate) module: ast::Module,
    /// Its kernels, cached if they do not depend on addresses of variables.
    programs: OnceLock<Programs>,
}

impl Image {
    /// Decodes the kernels. `address_of` returns the addresses of global variables.
    pub(crate) fn programs(
        &self,
        address_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Programs, DecodeError> {
        if let Some(programs) = self.programs.get() {
            return Ok(programs.clone());
        }
        let decode = |entry: &ast::Entry| {
            let program = Program::decode(&self.module, &entry.name, address_of)?;
            Ok((entry.name.clone(), Arc::new(program)))
        };
        let programs: Programs =
            self.module.entries.iter().map(decode).collect::<Result<_, _>>()?;
        if self.module.variables.is_empty() {
            let _ = self.programs.set(programs.clone());
        }
        Ok(programs)
    }
}

/// Images, least recently used first.
static IMAGES: Mutex<VecDeque<Arc<Image>>> = Mutex::new(VecDeque::new());

/// Parses a text, or returns its cached image.
pub(crate) fn parse(text: &str) -> Result<Arc<Image>, ParseError> {
    let lock = || IMAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = {
        let mut images = lock();
        let index = images.iter().position(|image| *image.text == *text);
        index.and_then(|index| images.remove(index)).inspect(|image| {
            images.push_back(Arc::clone(image));
        })
    };
    if let Some(image) = found {
        return Ok(image);
    }
    let module = retrograph_ptx::parse(text)?;
    let image = Arc::new(Image { text: text.into(), module, programs: OnceLock::new() });
    if text.len() <= KEPT {
        let mut images = lock();
        images.push_back(Arc::clone(&image));
        let mut bytes: usize = images.iter().map(|image| image.text.len()).sum();
        while bytes > KEPT {
            bytes -= images.pop_front().map_or(0, |image| image.text.len());
        }
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, bytes: usize) -> String {
        let comment = "x".repeat(bytes);
        format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n// {comment}\n\
             .visible .entry {name}()\n{{\nret;\n}}\n"
        )
    }

    #[test]
    fn an_image_is_parsed_once_and_the_least_recently_used_ones_are_dropped() {
        let [first, second] = ["first", "second"].map(|name| text(name, KEPT * 2 / 5));
        let parsed = parse(&first).unwrap();
        parse(&second).unwrap();
        assert!(Arc::ptr_eq(&parsed, &parse(&first).unwrap()));
        // Only the second image is evicted.
        parse(&text("third", KEPT * 2 / 5)).unwrap();
        assert!(Arc::ptr_eq(&parsed, &parse(&first).unwrap()));
        let large = text("large", KEPT);
        assert!(!Arc::ptr_eq(&parse(&large).unwrap(), &parse(&large).unwrap()));
        assert!(parse("no PTX").is_err());
    }
}
