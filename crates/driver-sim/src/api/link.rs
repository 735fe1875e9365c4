//! Linking: texts of PTX become one.
//!
//! The result is PTX again, which loads like any other image.

use std::ffi::{c_char, c_void};

use retrograph_driver_sys::*;

use super::modules::{LoadFailure, read_file};
use crate::argument::{Call, In, Out};
use crate::jit::JitLog;
use crate::refusal::invalid;
use crate::state::{Link, State};

impl State {
    pub(crate) fn cuLinkCreate_v2(
        &mut self,
        count: u32,
        options: Out<CUjit_option>,
        values: Out<*mut c_void>,
        link: Out<CUlinkState>,
    ) -> Call {
        self.current()?;
        link.demand()?;
        let options = options.input().list(count as usize)?;
        let log = JitLog::from_options(&options, values)?;
        let handle = self.handle();
        self.links.insert(handle, Link { inputs: Vec::new(), log, image: None });
        link.put(handle)
    }

    #[expect(clippy::too_many_arguments, reason = "the signature is the driver's")]
    pub(crate) fn cuLinkAddData_v2(
        &mut self,
        link: CUlinkState,
        kind: CUjitInputType,
        data: Out<c_void>,
        size: usize,
        _name: In<c_char>,
        count: u32,
        options: Out<CUjit_option>,
        values: Out<*mut c_void>,
    ) -> Call {
        self.links.get(link)?;
        let options = options.input().list(count as usize)?;
        JitLog::from_options(&options, values)?;
        if data.is_null() || size == 0 {
            return Err(invalid("link.empty"));
        }
        self.refuse_other_inputs(kind)?;
        let bytes = data.input_bytes(size)?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        self.add_input(link, String::from_utf8_lossy(text).into_owned())
    }

    pub(crate) fn cuLinkAddFile_v2(
        &mut self,
        link: CUlinkState,
        kind: CUjitInputType,
        path: In<c_char>,
        count: u32,
        options: Out<CUjit_option>,
        values: Out<*mut c_void>,
    ) -> Call {
        self.links.get(link)?;
        let options = options.input().list(count as usize)?;
        JitLog::from_options(&options, values)?;
        let text = read_file(&path.text()?)?;
        self.refuse_other_inputs(kind)?;
        self.add_input(link, text)
    }

    fn refuse_other_inputs(&mut self, kind: CUjitInputType) -> Call {
        match kind {
            CUjitInputType::CU_JIT_INPUT_PTX => Ok(()),
            _ => Err(self.unsupported("inputs of a linker other than PTX")),
        }
    }

    /// Adds a text, which is compiled when it is added.
    fn add_input(&mut self, link: CUlinkState, text: String) -> Call {
        if self.links.get(link)?.image.is_some() {
            return Err(invalid("link.complete"));
        }
        let parsed = self.parse_image(&text);
        self.finish_log(link, parsed.as_ref().err())?;
        parsed.map_err(|failure| self.failed(failure))?;
        self.links.get_mut(link)?.inputs.push(text);
        Ok(())
    }

    fn finish_log(&self, link: CUlinkState, failure: Option<&LoadFailure>) -> Call {
        self.links.get(link)?.log.finish(failure.map(|failure| failure.message.as_str()))
    }

    pub(crate) fn cuLinkComplete(
        &mut self,
        link: CUlinkState,
        image: Out<*mut c_void>,
        bytes: Out<usize>,
    ) -> Call {
        self.links.get(link)?;
        image.demand()?;
        let text = joined(&self.links.get(link)?.inputs);
        let checked = self.parse_image(&text);
        self.finish_log(link, checked.as_ref().err())?;
        checked.map_err(|failure| self.failed(failure))?;
        let found = self.links.get_mut(link)?;
        let made = found.image.insert(text.into_bytes());
        made.push(0);
        bytes.offer(made.len());
        image.put(made.as_mut_ptr().cast())
    }

    pub(crate) fn cuLinkDestroy(&mut self, link: CUlinkState) -> Call {
        self.links.remove(link).map(|_| ())
    }
}

/// One text of several: the heads of all but the first are left out, and so are declarations of
/// functions that another text defines.
fn joined(inputs: &[String]) -> String {
    let is_head = |line: &str| {
        let line = line.trim_start();
        [".version", ".target", ".address_size"].iter().any(|word| line.starts_with(word))
    };
    let mut text = String::new();
    for (index, input) in inputs.iter().enumerate() {
        for line in input.lines().filter(|line| index == 0 || !is_head(line)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
