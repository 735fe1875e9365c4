//! Linking of PTX texts (`cuLinkCreate`, `cuLinkAddData`, `cuLinkComplete`).
//!
//! The result is PTX, which loads like any other image.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use retrograph_driver_sys::*;
use retrograph_ptx::ast::{Linkage, Module};

use super::device_runtime::{is_device_runtime, take_from_device_runtime};
use super::images::{LoadFailure, is_binary, read_bytes, undefined_function, undefined_functions};
use super::join::{join, mismatched_function};
use crate::argument::{Call, In, Out};
use crate::image::Image;
use crate::refusal::{Refusal, Rule, invalid, refuse};
use crate::state::{Link, State};

/// Two inputs define the same name.
const DEFINED_TWICE: Refusal = refuse(CUresult::CUDA_ERROR_INVALID_SOURCE, Rule::LinkDefinedTwice);

/// An input of a link.
struct Input {
    link: CUlinkState,
    kind: CUjitInputType,
    name: In<c_char>,
    options: (u32, Out<CUjit_option>, Out<*mut c_void>),
}

impl State {
    pub(crate) fn cuLinkCreate_v2(
        &mut self,
        count: u32,
        options: Out<CUjit_option>,
        values: Out<*mut c_void>,
        link: Out<CUlinkState>,
    ) -> Call {
        self.current()?;
        let log = self.jit_log(count, options, values)?;
        let handle = self.handle();
        link.write(handle)?;
        self.links.insert(handle, Link { log, ..Link::default() });
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the signature is the driver's")]
    pub(crate) fn cuLinkAddData_v2(
        &mut self,
        link: CUlinkState,
        kind: CUjitInputType,
        data: Out<c_void>,
        size: usize,
        name: In<c_char>,
        count: u32,
        options: Out<CUjit_option>,
        values: Out<*mut c_void>,
    ) -> Call {
        let input = Input { link, kind, name, options: (count, options, values) };
        self.add_input(input, || match data.is_null() || size == 0 {
            true => Err(invalid(Rule::LinkEmpty)),
            false => data.input_bytes(size),
        })
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
        let input = Input { link, kind, name: path, options: (count, options, values) };
        self.add_input(input, || read_bytes(&path.text()?))
    }

    /// Refuses inputs that are neither PTX nor libcudadevrt. PTX is accepted as a fat binary, too.
    fn refuse_other_inputs(&mut self, kind: CUjitInputType, bytes: &[u8]) -> Call {
        use CUjitInputType as K;
        let is_text = bytes.first().is_none_or(u8::is_ascii);
        if !is_text || is_binary(bytes) || bytes.starts_with(b"!<arch>") {
            return Err(self.unsupported("inputs of a linker other than PTX and libcudadevrt"));
        }
        match kind {
            _ if bytes.is_empty() => {
                Err(refuse(CUresult::CUDA_ERROR_INVALID_IMAGE, Rule::LinkNoImage))
            }
            K::CU_JIT_INPUT_PTX | K::CU_JIT_INPUT_FATBINARY => Ok(()),
            K::CU_JIT_INPUT_CUBIN | K::CU_JIT_INPUT_LIBRARY => {
                Err(refuse(CUresult::CUDA_ERROR_INVALID_IMAGE, Rule::LinkNoImage))
            }
            K::CU_JIT_INPUT_OBJECT => Err(refuse(CUresult::CUDA_ERROR_UNKNOWN, Rule::LinkNoObject)),
            K::CU_JIT_INPUT_NVVM => {
                Err(refuse(CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND, Rule::LinkNvvm))
            }
            _ => Err(invalid(Rule::LinkKind)),
        }
    }

    /// Parses a text and adds it.
    fn add_input(&mut self, input: Input, read: impl FnOnce() -> Result<Vec<u8>, Refusal>) -> Call {
        let Input { link, kind, name, options: (count, options, values) } = input;
        let is_complete = self.links.get(link)?.image.is_some();
        self.jit_log(count, options, values)?;
        let bytes = read()?;
        let name = if name.is_null() { String::new() } else { name.text()? };
        let is_library = kind == CUjitInputType::CU_JIT_INPUT_LIBRARY;
        if is_library && !is_complete && is_device_runtime(&bytes) {
            self.links.get_mut(link)?.has_device_runtime = true;
            return Ok(());
        }
        self.refuse_other_inputs(kind, &bytes)?;
        if is_complete {
            return Err(invalid(Rule::LinkComplete));
        }
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(text).into_owned();
        let parsed = self.parse_image(&text);
        self.finish_log(link, parsed.as_ref().err())?;
        let parsed = parsed.map_err(|failure| self.failed(failure))?;
        let found = self.links.get_mut(link)?;
        for name in public_names(&parsed.module) {
            if !found.names.insert(name.to_owned()) {
                found.is_broken = true;
            }
        }
        if found.is_broken {
            return Err(DEFINED_TWICE);
        }
        found.inputs.push((name, parsed));
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
        image.require()?;
        if found.image.is_some() {
            return Err(refuse(CUresult::CUDA_ERROR_INVALID_HANDLE, Rule::LinkCompleteAgain));
        }
        if found.is_broken {
            return Err(DEFINED_TWICE);
        }
        let text = self.joined(link)? + "\0";
        let made = self.links.get_mut(link)?.image.insert(text.into_bytes());
        bytes.write_unless_null(made.len());
        image.write(made.as_mut_ptr().cast())
    }

    /// Joins all inputs into one text.
    fn joined(&mut self, link: CUlinkState) -> Result<String, Refusal> {
        let found = self.links.get(link)?;
        let mut inputs: Vec<Module> =
            found.inputs.iter().map(|(_, image)| image.module.clone()).collect();
        let has_device_runtime = found.has_device_runtime;
        if has_device_runtime {
            take_from_device_runtime(&mut inputs);
        }
        if let Some(most) = found.log.max_registers() {
            for entry in inputs.iter_mut().flat_map(|module| &mut module.entries) {
                let own = entry.limits.max_registers;
                entry.limits.max_registers = Some(own.unwrap_or(most).min(most));
            }
        }
        let Some(text) = join(&inputs) else {
            let (major, minor) = self.config.compute_capability;
            let isa = self.config.newest_isa();
            return Ok(format!(".version {isa}\n.target sm_{major}{minor}\n.address_size 64\n"));
        };
        let parsed = self.parse_image(&text).map_err(|failure| {
            if let Some(name) = mismatched_function(&inputs) {
                // nvlink 13.0 fails with "Prototype doesn't match", nvJitLink 13.0 prints that and
                // succeeds; no recording shows what the driver does.
                return self.unsupported(format!("`{name}` with different signatures in a link"));
            }
            let LoadFailure { message, .. } = failure;
            self.unsupported(format!("texts that cannot be joined as they are: {message}"))
        })?;
        match undefined_function(&parsed.module) {
            Some(name) if has_device_runtime && name.starts_with("cuda") => {
                Err(self.unsupported(format!("`{name}` of libcudadevrt is not simulated")))
            }
            Some(_) => {
                let found = self.links.get(link)?;
                // The message format of the driver.
                let missing: BTreeSet<_> = undefined_functions(&parsed.module).collect();
                let lines = missing.into_iter().map(|name| {
                    let calls = |(_, image): &&(String, Arc<Image>)| {
                        undefined_functions(&image.module).any(|undefined| undefined == name)
                    };
                    let caller = found.inputs.iter().find(calls);
                    let caller = caller.map_or("", |(caller, _)| caller.as_str());
                    format!("error   : Undefined reference to '{name}' in '{caller}'")
                });
                found.log.finish(Some(&lines.collect::<Vec<_>>().join("\n")))?;
                Err(refuse(CUresult::CUDA_ERROR_INVALID_SOURCE, Rule::LinkUndefined))
            }
            None => Ok(text),
        }
    }

    pub(crate) fn cuLinkDestroy(&mut self, link: CUlinkState) -> Call {
        self.links.remove(link).map(|_| ())
    }
}

/// The names of a module's public symbols.
fn public_names(module: &Module) -> impl Iterator<Item = &str> {
    let functions = module.functions.iter().filter(|function| function.is_defined);
    let functions = functions.filter(|function| function.linkage == Linkage::Visible);
    let variables = module.variables.iter().filter(|variable| variable.linkage == Linkage::Visible);
    let entries = module.entries.iter().map(|entry| entry.name.as_str());
    entries
        .chain(functions.map(|function| function.code.name.as_str()))
        .chain(variables.map(|variable| variable.name.as_str()))
}
