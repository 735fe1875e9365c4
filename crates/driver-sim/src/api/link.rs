//! Linking: texts of PTX become one.
//!
//! The result is PTX again, which loads like any other image.

use std::ffi::{c_char, c_void};

use retrograph_driver_sys::*;

use super::modules::{LoadFailure, read_file, resolved};
use crate::argument::{Call, In, Out};
use crate::jit::JitLog;
use crate::refusal::{invalid, refuse};
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
        self.links.insert(handle, Link { log, ..Link::default() });
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
        let bytes = data.input_bytes(size)?;
        self.refuse_other_inputs(kind, &bytes)?;
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
        self.refuse_other_inputs(kind, text.as_bytes())?;
        self.add_input(link, text)
    }

    /// Refuses what is not PTX under the names of other kinds of input.
    fn refuse_other_inputs(&mut self, kind: CUjitInputType, text: &[u8]) -> Call {
        use CUjitInputType as Kind;
        if text.starts_with(b"\x7fELF") {
            return Err(self.unsupported("inputs of a linker other than PTX"));
        }
        match kind {
            Kind::CU_JIT_INPUT_PTX | Kind::CU_JIT_INPUT_FATBINARY => Ok(()),
            Kind::CU_JIT_INPUT_CUBIN | Kind::CU_JIT_INPUT_LIBRARY => {
                Err(refuse(CUresult::CUDA_ERROR_INVALID_IMAGE, "link.kind"))
            }
            Kind::CU_JIT_INPUT_OBJECT => Err(refuse(CUresult::CUDA_ERROR_UNKNOWN, "link.object")),
            Kind::CU_JIT_INPUT_NVVM => {
                let code = CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
                Err(refuse(code, "link.nvvm"))
            }
            _ => Err(invalid("link.kind")),
        }
    }

    /// Adds a text, which is compiled when it is added.
    fn add_input(&mut self, link: CUlinkState, text: String) -> Call {
        if self.links.get(link)?.image.is_some() {
            return Err(invalid("link.complete"));
        }
        let parsed = self.parse_image(&text);
        self.finish_log(link, parsed.as_ref().err())?;
        let parsed = parsed.map_err(|failure| self.failed(failure))?;
        let names: Vec<_> = parsed.entries.into_iter().map(|entry| entry.name).collect();
        let found = self.links.get_mut(link)?;
        let is_double = names.iter().any(|name| found.names.contains(name));
        found.is_broken |= is_double;
        if is_double {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_SOURCE, "link.double"));
        }
        found.names.extend(names);
        found.inputs.push(text);
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
        let found = self.links.get(link)?;
        if found.image.is_some() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, "link.completed"));
        }
        image.demand()?;
        let unresolved = refuse(CUresult::CUDA_ERROR_INVALID_SOURCE, "link.unresolved");
        if found.is_broken {
            return Err(unresolved);
        }
        let text = joined(&self.links.get(link)?.inputs);
        let checked = self.parse_image(&text).and_then(resolved);
        self.finish_log(link, checked.as_ref().err())?;
        checked.map_err(|failure| match failure.refusal.stops {
            Some(_) => self.failed(failure),
            None => unresolved,
        })?;
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
    if inputs.is_empty() {
        // An image without anything in it.
        text.push_str(".version 7.0\n.target sm_70\n.address_size 64\n");
    }
    for (index, input) in inputs.iter().enumerate() {
        for line in input.lines().filter(|line| index == 0 || !is_head(line)) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}
