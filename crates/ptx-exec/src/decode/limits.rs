//! Limits of the memory that a kernel declares.

use retrograph_ptx::ast::{StateSpace, Variable};

use super::Decoder;
use crate::fault::DecodeError;

/// The maximum static shared memory that a kernel can declare, in bytes: the shared memory of an
/// SM. Drivers load kernels with more than the 48 KiB limit of a block, but fail to launch them.
///
/// Source of both limits: "Technical Specifications per Compute Capability" in the CUDA C++
/// programming guide.
const MAX_SHARED_BYTES: u64 = 228 << 10;

/// The maximum local memory of a thread, in bytes.
const MAX_LOCAL_BYTES: u64 = 512 << 10;

impl Decoder<'_> {
    /// Fails if the kernel declares more memory than a block or a thread can have.
    pub(super) fn check_memory(&self) -> Result<(), DecodeError> {
        let frames = self.regions.iter().map(|region| region.bytes);
        let local = frames.fold(self.local_peak, u64::max);
        self.require(StateSpace::Shared, self.variables.shared_bytes, MAX_SHARED_BYTES)?;
        self.require(StateSpace::Local, local, MAX_LOCAL_BYTES)
    }

    fn require(&self, space: StateSpace, bytes: u64, limit: u64) -> Result<(), DecodeError> {
        if bytes <= limit {
            return Ok(());
        }
        let (kernel, variable) = (self.frame.entry.name.clone(), self.largest(space));
        Err(DecodeError::TooMuchMemory { kernel, space, variable, bytes, limit })
    }

    /// The largest variable in a space that the kernel may use. Arguments are in local memory.
    fn largest(&self, space: StateSpace) -> String {
        let codes = self.module.functions.iter().map(|function| &function.code);
        let codes = codes.chain([self.frame.entry]);
        let variables = codes.flat_map(|code| &code.variables).chain(&self.module.variables);
        let of_space = variables.filter(|variable| match variable.space {
            StateSpace::Param => space == StateSpace::Local,
            other => other == space,
        });
        of_space.max_by_key(|v| v.size()).map_or(String::new(), |v: &Variable| v.name.clone())
    }
}
